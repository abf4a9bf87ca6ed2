"""Writes the answers of `POST /score`, and describes them for the OpenAPI document."""

from dataclasses import asdict
from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.reading.looks import SeenBody, check_size, described_looks
from serving.pipelines.translation.job import PairScore, SentenceAttention


class ScoredToken(TypedDict):
    text: str
    logprob: float


class Score(TypedDict):
    logprob: float
    mean_logprob: float
    num_tokens: int
    tokens: list[ScoredToken]
    attention: NotRequired[SentenceAttention | list[SeenBody]]


class Scores(TypedDict):
    scores: list[Score]


def described_score(score: PairScore) -> dict[str, Any]:
    """Write out a score; the last token, without text, is the end of the sentence."""
    attention: dict[str, Any] = {}
    if score.attention is not None:
        attention = {"attention": asdict(score.attention)}
    elif score.seen:
        check_size(score.seen)
        attention = {"attention": described_looks(score.seen)}
    return {
        "logprob": score.logprob,
        "mean_logprob": score.logprob / len(score.tokens),
        "num_tokens": len(score.tokens),
        "tokens": [{"text": text, "logprob": logprob} for text, logprob in score.tokens],
        **attention,
    }

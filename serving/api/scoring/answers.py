"""Writes the answers of `POST /score`, and describes them for the OpenAPI document."""

from dataclasses import asdict
from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.pipelines.translation.job import PairScore, SentenceAttention


class ScoredToken(TypedDict):
    text: str
    logprob: float


class Score(TypedDict):
    logprob: float
    mean_logprob: float
    num_tokens: int
    tokens: list[ScoredToken]
    attention: NotRequired[SentenceAttention]


class Scores(TypedDict):
    scores: list[Score]


def described_score(score: PairScore) -> dict[str, Any]:
    """Write out a score; the last token, without text, is the end of the sentence."""
    attention = {} if score.attention is None else {"attention": asdict(score.attention)}
    return {
        "logprob": score.logprob,
        "mean_logprob": score.logprob / len(score.tokens),
        "num_tokens": len(score.tokens),
        "tokens": [{"text": text, "logprob": logprob} for text, logprob in score.tokens],
        **attention,
    }

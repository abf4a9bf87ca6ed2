"""`POST /score`: the probability that a model gives to translations of a text."""

from dataclasses import asdict
from typing import Any, NotRequired

from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.attention import (
    AttentionMapBody,
    AttentionQueryFields,
    check_size,
    describe_maps,
    parse_queries,
)
from serving.api.http.bodies import READS_JSON, RequestBody
from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.protocol import PlainError, Protocol, plain_error
from serving.api.http.routing import ProtocolRoute, Routes
from serving.api.http.services import Services
from serving.errors import RequestError
from serving.pipelines.catalog import Model
from serving.pipelines.decoding import Decoding
from serving.pipelines.routing import find_translation_model
from serving.pipelines.translation.job import PairScore, ScoreJob, SentenceAttention
from serving.text.checks import check_texts

# The fields of the engine and the pipelines, and their names in this protocol.
FIELD_NAMES = {
    "forced_ids": "translations",
    "attention_queries": "return_attention",
    "source_ids": "q",
    "text": "q",
}


class ScoreBody(RequestBody):
    """Sources and translations. q and translations: lists of the same length, or one source with
    several translations. Each is one sentence, or a few: texts are not split. source, target:
    languages. return_attention, attention_heads: as in `POST /translate`, for each pair.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    q: str | list[str]
    translations: str | list[str]
    source: str
    target: str
    model: str | None = None
    return_attention: bool | list[str | AttentionQueryFields] = False
    attention_heads: list[int] = Field(default_factory=list)
    priority: int = 0
    timeout_seconds: float | None = None

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        targets = self.translations if isinstance(self.translations, list) else [self.translations]
        sources = self.q if isinstance(self.q, list) else [self.q] * len(targets)
        if len(sources) != len(targets):
            message = f"must be as many as the texts of q, {len(sources)}"
            raise RequestError("translations", f"{len(targets)} texts", message)
        return tuple(zip(sources, targets, strict=True))

    @property
    def num_characters(self) -> int:
        return sum(len(source) + len(target) for source, target in self.pairs)

    def check(self, max_characters: int) -> None:
        if self.attention_heads and self.return_attention is not True:
            raise RequestError("attention_heads", self.attention_heads, "needs return_attention")
        sources = dict.fromkeys(source for source, _ in self.pairs)
        check_texts("q", sources, max_characters)
        check_texts("translations", [target for _, target in self.pairs], max_characters)

    def job(self, request_id: str) -> ScoreJob:
        return ScoreJob(
            request_id,
            self.pairs,
            self.source,
            self.target,
            Decoding(priority=self.priority, timeout_seconds=self.timeout_seconds),
            self.return_attention is True,
            tuple(self.attention_heads),
            parse_queries(self.return_attention),
        )


class ScoredToken(TypedDict):
    text: str
    logprob: float


class Score(TypedDict):
    logprob: float
    mean_logprob: float
    num_tokens: int
    tokens: list[ScoredToken]
    attention: NotRequired[SentenceAttention | list[AttentionMapBody]]


class Scores(TypedDict):
    scores: list[Score]


def describe_score(score: PairScore) -> dict[str, Any]:
    """Return the JSON of a score; the last token, without text, is the end of the sentence."""
    attention: dict[str, Any] = {}
    if score.attention is not None:
        attention = {"attention": asdict(score.attention)}
    elif score.attention_maps:
        check_size(score.attention_maps)
        attention = {"attention": describe_maps(score.attention_maps)}
    return {
        "logprob": score.logprob,
        "mean_logprob": score.logprob / len(score.tokens),
        "num_tokens": len(score.tokens),
        "tokens": [{"text": text, "logprob": logprob} for text, logprob in score.tokens],
        **attention,
    }


PROTOCOL = Protocol("score", "/score", plain_error, PlainError, FIELD_NAMES)


async def _scorer(services: Services, body: ScoreBody) -> Model:
    return await find_translation_model(services.catalog, body.model, body.source, body.target)


async def _answer(call: Call[ScoreBody, Model]) -> JSONResponse:
    return JSONResponse({"scores": list(map(describe_score, await call.model.run(call.job)))})


ENDPOINTS = (
    Endpoint(
        protocol=PROTOCOL,
        path="",
        name="score",
        description="Return log-probabilities of translations, and of their tokens.",
        body=ScoreBody,
        reader=READS_JSON,
        find_model=_scorer,
        answer=_answer,
        answer_type=Scores,
        example={
            "q": "A dog runs.",
            "translations": ["Un chien court."],
            "source": "en",
            "target": "fr",
        },
    ),
)


def routes(services: Services) -> list[ProtocolRoute]:
    routes = Routes(PROTOCOL, "Scoring", services.authenticator)
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes, services)
    return routes.routes

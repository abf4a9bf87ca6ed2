"""`POST /score`, a protocol of our own: how likely a model finds given translations.

For reranking and evaluation. Language models score text by completions that echo their prompt.
"""

import uuid
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from serving.api.http.answers import PlainError, Scores
from serving.api.http.bodies import limited, parse, parse_json
from serving.api.http.errors import message_of, renamed
from serving.api.http.openapi import JSON, OF_A_BODY, body, responses
from serving.api.http.services import Services
from serving.errors import RequestError
from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import PairScore, ScoreJob
from serving.text.checks import check_texts

PATH = "/score"
# What the engine and the pipelines call fields, and what clients of this protocol do.
NAMES = {"forced_ids": "translations", "source_ids": "q", "text": "q"}


class ScoreBody(BaseModel):
    """q and translations are lists of the same length; or q is one text, which all translations
    are of. Each is one sentence, or a few: texts are not split. source and target: languages.
    return_attention, attention_heads: tell of each pair what `POST /translate` tells of sentences.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    q: str | list[str]
    translations: str | list[str]
    source: str
    target: str
    model: str | None = None
    return_attention: bool = False
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

    def job(self, request_id: str) -> ScoreJob:
        decoding = Decoding(priority=self.priority, timeout_seconds=self.timeout_seconds)
        if self.attention_heads and not self.return_attention:
            raise RequestError("attention_heads", self.attention_heads, "needs return_attention")
        return ScoreJob(
            request_id,
            self.pairs,
            self.source,
            self.target,
            decoding,
            self.return_attention,
            tuple(self.attention_heads),
        )


BODIES = (ScoreBody,)


def error_body(status: int, error: BaseException) -> dict[str, Any]:
    return {"error": message_of(renamed(error, NAMES))}


def router(services: Services) -> APIRouter:
    routes = APIRouter(tags=["Scoring"])

    @routes.post(
        PATH,
        responses=responses(Scores, PlainError, OF_A_BODY),
        openapi_extra=body(
            ScoreBody,
            JSON,
            example={
                "q": "A dog runs.",
                "translations": ["Un chien court."],
                "source": "en",
                "target": "fr",
            },
        ),
    )
    async def score(request: Request) -> JSONResponse:
        """Log-probabilities of translations, and of their tokens."""
        with services.metrics.track("score") as tracked:
            fields = parse_json(await limited(request, services.limits).body())
            body = parse(ScoreBody, {name: v for name, v in fields.items() if v is not None})
            job = body.job(uuid.uuid4().hex)
            check_texts("q", {source for source, _ in job.pairs}, services.limits.max_characters)
            targets = [target for _, target in job.pairs]
            check_texts("translations", targets, services.limits.max_characters)
            translator = await services.catalog.translator(body.model, job.source, job.target)
            tracked.model = translator.card.name
            return JSONResponse({"scores": list(map(score_body, await translator.score(job)))})

    return routes


def score_body(score: PairScore) -> dict[str, Any]:
    """The last token, without text, is the end of the sentence."""
    attention = {} if score.attention is None else {"attention": asdict(score.attention)}
    return {
        "logprob": score.logprob,
        "mean_logprob": score.logprob / len(score.tokens),
        "num_tokens": len(score.tokens),
        "tokens": [{"text": text, "logprob": logprob} for text, logprob in score.tokens],
        **attention,
    }

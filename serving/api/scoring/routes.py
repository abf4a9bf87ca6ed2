"""Serves `POST /score`, a protocol of our own: how likely a model finds given translations.

For reranking and evaluation. Language models score text by completions that echo their prompt.
"""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.plain_errors import PlainError, plain_error
from serving.api.http.protocol import Protocol
from serving.api.http.reading.fields import READS_JSON
from serving.api.http.services import Services
from serving.api.scoring.answers import Scores, described_score
from serving.api.scoring.score_body import FIELD_NAMES, ScoreBody
from serving.pipelines.catalog import Scorer

PROTOCOL = Protocol("score", "/score", plain_error, PlainError, FIELD_NAMES)


async def _scorer(services: Services, body: ScoreBody) -> Scorer:
    return await services.catalog.scorer(body.model, body.source, body.target)


async def _answer(call: Call[ScoreBody, Scorer]) -> JSONResponse:
    return JSONResponse({"scores": list(map(described_score, await call.model.score(call.job)))})


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


def router(services: Services) -> APIRouter:
    routes = PROTOCOL.router("Scoring")
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes, services)
    return routes

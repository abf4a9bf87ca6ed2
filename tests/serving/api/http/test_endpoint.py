"""A protocol that is new is a body, an answer and a `Protocol`: here a small one like DeepL's."""

import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import ConfigDict

from serving.api.http.bodies import NoOpValues, RequestBody, reads_all
from serving.api.http.endpoint import ARRIVED_MS, Call, Endpoint
from serving.api.http.protocol import REFUSES_ALL, Protocol, message_of
from serving.api.http.routing import Routes
from serving.api.http.services import Services
from serving.observability.metrics import Metrics
from serving.pipelines.catalog import Catalog, Translator
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.job import TranslationJob
from serving.server_config import TextLimits
from serving.text.checks import check_texts
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import shouting_translator

NAMES = {"source": "source_lang", "target": "target_lang", "source_ids": "text"}
PROTOCOL = Protocol("deep", "/v2", lambda status, error: {"message": message_of(error)}, Any, NAMES)


class Body(RequestBody):
    model_config = ConfigDict(extra="forbid")
    no_op_values: ClassVar[NoOpValues] = {"formality": ("default",)}

    text: list[str]
    source_lang: str
    target_lang: str

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.text))

    def check(self, max_characters: int) -> None:
        check_texts("text", self.text, max_characters)

    def job(self, request_id: str) -> TranslationJob:
        source, target = self.source_lang.lower(), self.target_lang.lower()
        return TranslationJob(request_id, tuple(self.text), source, target)


async def translator(services: Services, body: Body) -> Translator:
    source, target = body.source_lang.lower(), body.target_lang.lower()
    return await find_translator(services.catalog, None, source, target)


async def answer(call: Call[Body, Translator]) -> JSONResponse:
    translation = await call.model.run(call.job)
    return JSONResponse({"translations": [{"text": text} for text in translation.texts]})


ENDPOINT = Endpoint(
    protocol=PROTOCOL,
    path="/translate",
    name="translate",
    description="Translate texts.",
    body=Body,
    reader=reads_all(repeated="text"),
    find_model=translator,
    answer=answer,
    answer_type=dict[str, Any],
    example={"text": ["A dog runs."], "source_lang": "EN", "target_lang": "FR"},
)
EN_FR = {"source_lang": "EN", "target_lang": "FR"}
ASKED = {"text": ["a", "b"], **EN_FR}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("r1")


@pytest.fixture
async def client(tokenizer: Tokenizer, metrics: Metrics) -> AsyncIterator[httpx.AsyncClient]:
    async def exposition() -> bytes:
        return metrics.exposition()

    limits = TextLimits(max_characters=100, max_segments=20)
    model, _ = shouting_translator(tokenizer)
    catalog = Catalog([model])
    services = Services(catalog, limits, metrics, exposition, lambda: True, max_wait_seconds=2.0)
    app = FastAPI()
    routes = Routes(PROTOCOL, "Deep")
    ENDPOINT.add_to(routes, services)
    app.router.routes.extend(routes.routes)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://attendant") as client:
        yield client


@pytest.mark.parametrize(
    "sent",
    [
        {"json": ASKED},
        {"json": {**ASKED, "formality": "default", "glossary": None}},
        {"data": ASKED},
        {"files": {"text": (None, "a")}, "data": {"text": "b", **EN_FR}},
        {"params": {"text": ["a", "b"]}, "json": EN_FR},
    ],
)
async def test_an_answer(client: httpx.AsyncClient, metrics: Metrics, sent: dict[str, Any]) -> None:
    response = await client.post("/v2/translate", **sent)

    assert {translation["text"] for translation in response.json()["translations"]} == {"A", "B"}
    assert ends(metrics) == {("shout", "deep", "success"): 1}


@pytest.mark.parametrize(("seconds", "status"), [(0.0, 200), (1.5, 200), (2.5, 429), (1e6, 429)])
async def test_who_has_waited_too_long_to_be_read_is_refused(
    client: httpx.AsyncClient, metrics: Metrics, seconds: float, status: int
) -> None:
    arrived = {ARRIVED_MS: str(round(1000 * (time.time() - seconds)))}
    response = await client.post("/v2/translate", json=ASKED, headers=arrived)

    assert response.status_code == status
    assert (REFUSES_ALL in response.headers) == (status == 429)
    outcome = ("shout", "deep", "success") if status == 200 else ("", "deep", "overloaded")
    assert ends(metrics) == {outcome: 1} and metrics.num_open == 0


@pytest.mark.parametrize("arrived", ["", "now", "-1", "1e3", "\u0661", "9" * 400])
async def test_a_time_of_arrival_that_is_none_refuses_nobody(
    client: httpx.AsyncClient, arrived: str
) -> None:
    headers = [(ARRIVED_MS.encode(), arrived.encode())]
    response = await client.post("/v2/translate", json=ASKED, headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("changed", "status", "message"),
    [
        ({"text": None}, 400, "text: is required (got null)"),
        ({"formality": "less"}, 400, 'formality: is not supported here (got "less")'),
        ({"text": ["a\0"]}, 400, 'text: must not contain NUL characters (got "a\\u0000")'),
        ({"target_lang": "XX"}, 400, "target_lang: not a target language for en; there are: fr"),
        ({"text": ["a" * 101]}, 413, "text: must be at most 100 characters, this has 101"),
        ({"text": ["a" * 10_000]}, 413, "text: must be at most 100 characters, this has 10000"),
        ({"text": ["a" * 100_000]}, 413, 'body: is too large (got "more than 66736 bytes")'),
    ],
)
async def test_a_refusal(
    client: httpx.AsyncClient,
    metrics: Metrics,
    changed: dict[str, Any],
    status: int,
    message: str,
) -> None:
    response = await client.post("/v2/translate", json=ASKED | changed)

    assert response.status_code == status
    assert response.json()["message"].startswith(message)
    assert ends(metrics) == {("", "deep", "refused"): 1}


def ends(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    return {
        (sample.labels["model"], sample.labels["protocol"], sample.labels["outcome"]): sample.value
        for family in metrics.registry.collect()
        if family.name == "attendant_requests"
        for sample in family.samples
    }

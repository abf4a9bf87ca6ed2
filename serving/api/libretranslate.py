"""LibreTranslate: `POST /translate` and `GET /languages`.

Bodies are JSON or forms; fields may stand in the query too. Only the shape of the protocol is
LibreTranslate's. `model` is our extension: the model to translate with.
"""

import uuid
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from serving.api.bodies import limited, parse, parse_form, parse_json
from serving.api.errors import message_of
from serving.api.languages import language_name
from serving.api.services import Services
from serving.bundle.manifest import Task
from serving.config import TextLimits
from serving.pipelines.jobs import ModelCard, TranslationJob
from serving.text.checks import check_texts

_URL_ENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"


class TranslateBody(BaseModel):
    """Fields that other LibreTranslate servers know and this one does not are passed over."""

    model_config = ConfigDict(extra="ignore")

    q: str | list[str]
    source: str
    target: str
    format: Literal["text"] = "text"
    alternatives: Literal[0, "0"] = 0
    model: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.q,) if isinstance(self.q, str) else tuple(self.q)


def error_body(status: int, error: Exception) -> dict[str, Any]:
    return {"error": message_of(error)}


def router(services: Services) -> APIRouter:
    routes = APIRouter(tags=["LibreTranslate"])
    schema = {"content": {"application/json": {"schema": TranslateBody.model_json_schema()}}}

    @routes.post("/translate", openapi_extra={"requestBody": schema})
    async def translate(request: Request) -> JSONResponse:
        """Translate a text or a list of texts."""
        with services.metrics.track("libretranslate") as tracked:
            body = parse(TranslateBody, await _fields(request, services.limits))
            check_texts("q", body.texts, services.limits.max_characters)
            source, target = body.source.lower(), body.target.lower()
            translator = await services.catalog.translator(body.model, source, target)
            tracked.model = translator.card.name
            job = TranslationJob(uuid.uuid4().hex, body.texts, source, target)
            texts = list((await translator.translate(job)).texts)
            return JSONResponse({"translatedText": texts[0] if isinstance(body.q, str) else texts})

    @routes.get("/languages")
    async def languages() -> JSONResponse:
        """Languages that can be translated from, each with those it can be translated into."""
        cards = [model.card for model in await services.catalog.models()]
        return JSONResponse(_languages(cards))

    return routes


async def _fields(request: Request, limits: TextLimits) -> dict[str, Any]:
    """Body and query together; `q` given more than once is a list."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    request = limited(request, limits)
    if content_type == _URL_ENCODED:
        given = parse_form(await request.body())
        return _gathered([*request.query_params.multi_items(), *given])
    if content_type == _MULTIPART:
        form = await request.form()
        given = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        return _gathered([*request.query_params.multi_items(), *given])
    query = _gathered(request.query_params.multi_items())
    body = await request.body()
    return {**query, **parse_json(body)} if body else query


def _gathered(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    fields: dict[str, Any] = dict(pairs)
    texts = [value for name, value in pairs if name == "q"]
    if len(texts) > 1:
        fields["q"] = texts
    return fields


def _languages(cards: list[ModelCard]) -> list[dict[str, Any]]:
    targets: dict[str, set[str]] = {}
    for card in cards:
        if card.task is Task.TRANSLATE:
            for source in card.source_languages:
                targets.setdefault(source, set()).update(card.target_languages)
    return [
        {"code": code, "name": language_name(code), "targets": sorted(targets[code])}
        for code in sorted(targets)
    ]

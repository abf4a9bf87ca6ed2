"""LibreTranslate: `POST /translate` and `GET /languages`.

Bodies are JSON or forms; fields may stand in the query too. Only the shape of the protocol is
LibreTranslate's. Our extensions are in `translate_bodies`.
"""

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from serving.api.http.answers import Language, PlainError, Translated
from serving.api.http.bodies import limited, parse, parse_form, parse_json, parse_multipart
from serving.api.http.errors import message_of, renamed
from serving.api.http.openapi import (
    JSON,
    MULTIPART,
    OF_A_BODY,
    OF_ANY_ROUTE,
    URL_ENCODED,
    body,
    responses,
)
from serving.api.http.services import Services
from serving.api.libretranslate.translate_body import NAMES, TranslateBody
from serving.bundle.manifest import Task
from serving.config import TextLimits
from serving.pipelines.cards import ModelCard
from serving.pipelines.translation.job import AlignedWords, Translation
from serving.text.checks import check_texts
from serving.text.languages import language_name

BODIES = (TranslateBody,)


def error_body(status: int, error: BaseException) -> dict[str, Any]:
    return {"error": message_of(renamed(error, NAMES))}


def router(services: Services) -> APIRouter:
    routes = APIRouter(tags=["LibreTranslate"])

    @routes.post(
        "/translate",
        responses=responses(Translated, PlainError, OF_A_BODY),
        openapi_extra=body(
            TranslateBody,
            JSON,
            URL_ENCODED,
            MULTIPART,
            example={"q": "A dog runs.", "source": "en", "target": "fr"},
        ),
    )
    async def translate(request: Request) -> JSONResponse:
        """Translate a text or a list of texts."""
        with services.metrics.track("libretranslate") as tracked:
            fields = await _fields(request, services.limits)
            body = parse(TranslateBody, {name: v for name, v in fields.items() if v is not None})
            check_texts("q", body.texts, services.limits.max_characters)
            translator = await services.catalog.translator(body.model, body.source, body.target)
            card = translator.card
            tracked.model = card.name
            job = body.with_defaults(card.generation).job(uuid.uuid4().hex)
            return JSONResponse(_answer(body, await translator.translate(job)))

    @routes.get("/languages", responses=responses(list[Language], PlainError, OF_ANY_ROUTE))
    async def languages() -> JSONResponse:
        """Languages that can be translated from, each with those it can be translated into."""
        cards = [model.card for model in await services.catalog.models()]
        return JSONResponse(_languages(cards))

    return routes


def _answer(body: TranslateBody, translation: Translation) -> dict[str, Any]:
    """What was not asked for is not there; of a single text nothing is in a list of its own."""
    answer: dict[str, list[Any]] = {"translatedText": list(translation.texts)}
    renderings = translation.renderings
    if body.alternatives:
        answer["alternatives"] = [[other.text for other in others] for _, *others in renderings]
    if body.return_scores:
        answer["scores"] = [[each.score for each in ranked] for ranked in renderings]
    if body.return_scores or body.glossary or body.max_new_tokens is not None:
        answer["finish_reasons"] = [best.reason for best, *_ in renderings]
    if body.alignments:
        answer["alignments"] = [_alignment(best.alignment) for best, *_ in renderings]
    if body.return_attention:
        answer["attention"] = [list(map(asdict, best.attention)) for best, *_ in renderings]
    if isinstance(body.q, str):
        return {name: values[0] for name, values in answer.items()}
    return answer


def _alignment(aligned: AlignedWords | None) -> dict[str, Any]:
    """A text without any words has no alignment."""
    aligned = aligned or AlignedWords((), (), ())
    return {
        "source": aligned.source_words,
        "target": aligned.target_words,
        "pharaoh": aligned.pharaoh,
    }


async def _fields(request: Request, limits: TextLimits) -> dict[str, Any]:
    """Body and query together; `q` given more than once is a list."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    request = limited(request, limits)
    if content_type == URL_ENCODED:
        given = parse_form(await request.body())
        return _gathered([*request.query_params.multi_items(), *given])
    if content_type == MULTIPART:
        given = await parse_multipart(request)
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
                targets.setdefault(source, set()).update(card.targets_of(source))
    names = Counter(map(language_name, targets))
    return [
        {"code": code, "name": _name(code, names), "targets": sorted(targets[code])}
        for code in sorted(targets)
    ]


def _name(code: str, names: Mapping[str, int]) -> str:
    """With the code where several have the same name, as those of one language in two scripts."""
    name = language_name(code)
    return name if names[name] == 1 else f"{name} ({code})"

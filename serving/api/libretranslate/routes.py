"""Speaks LibreTranslate: `POST /translate` and `GET /languages`.

Bodies are JSON or forms; fields may stand in the query too. Only the shape of the protocol is
LibreTranslate's. Our extensions are in `translate_body`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.fields import reads_all
from serving.api.http.openapi import OF_ANY_ROUTE
from serving.api.http.plain_errors import PlainError, plain_error
from serving.api.http.protocol import Protocol
from serving.api.http.services import Services
from serving.api.libretranslate.answers import Language, Translated
from serving.api.libretranslate.translate_body import FIELD_NAMES, TranslateBody
from serving.bundle.manifest import Task
from serving.errors import KeyRefused
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Translator
from serving.pipelines.translation.job import AlignedWords, Translation
from serving.text.languages import language_name

PROTOCOL = Protocol(
    "libretranslate",
    "",
    plain_error,
    PlainError,
    FIELD_NAMES,
    key_field="api_key",
    statuses={KeyRefused: 403},
)


async def _translator(services: Services, body: TranslateBody) -> Translator:
    return await services.catalog.translator(body.model, body.source, body.target)


async def _answer(call: Call[TranslateBody, Translator]) -> JSONResponse:
    return JSONResponse(_translated(call.body, await call.model.translate(call.job)))


ENDPOINTS = (
    Endpoint(
        protocol=PROTOCOL,
        path="/translate",
        name="translate",
        description="Translate a text or a list of texts.",
        body=TranslateBody,
        reader=reads_all(repeated="q"),
        find_model=_translator,
        answer=_answer,
        answer_type=Translated,
        example={"q": "A dog runs.", "source": "en", "target": "fr"},
    ),
)


def router(services: Services) -> APIRouter:
    routes = PROTOCOL.router("LibreTranslate")
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes, services)

    @routes.get("/languages", responses=PROTOCOL.responses(list[Language], OF_ANY_ROUTE))
    async def languages() -> JSONResponse:
        """List languages to translate from, each with those that it can be translated into."""
        cards = [model.card for model in await services.catalog.models()]
        return JSONResponse(_languages(cards))

    return routes


def _translated(body: TranslateBody, translation: Translation) -> dict[str, Any]:
    """Leave out what was not asked for; of a single text nothing is in a list of its own."""
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
    """Write out an alignment; a text without any words has none."""
    aligned = aligned or AlignedWords((), (), ())
    return {
        "source": aligned.source_words,
        "target": aligned.target_words,
        "pharaoh": aligned.pharaoh,
    }


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
    """Add the code where several have the same name, as those of one language in two scripts."""
    name = language_name(code)
    return name if names[name] == 1 else f"{name} ({code})"

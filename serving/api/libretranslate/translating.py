"""Answers `POST /translate`: as one JSON value, or as server-sent events."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any

from fastapi.responses import JSONResponse, Response

from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.openapi import described_events
from serving.api.http.reading.fields import reads_all
from serving.api.http.reading.looks import check_size, described_looks
from serving.api.http.services import Services
from serving.api.http.streams import EventStream, events_of, first_of
from serving.api.libretranslate.answers import Translated
from serving.api.libretranslate.languages import detected
from serving.api.libretranslate.protocol import PROTOCOL
from serving.api.libretranslate.translate_body import FIELD_NAMES, TranslateBody
from serving.detection.choice import Chosen, chosen_translator
from serving.detection.source import is_told
from serving.metrics import Outcome
from serving.pipelines.translation.deltas import TranslationDelta, TranslationStream
from serving.pipelines.translation.job import AlignedWords, Translation

_EVENTS = (
    "With `stream`: pieces, as {index, sentence, delta}, the last of a sentence with its "
    "finish_reason; then the whole answer; or at any time {error}."
)


async def _translator(services: Services, body: TranslateBody) -> Chosen:
    languages = (body.source, body.target)
    return await chosen_translator(services, body.texts, *languages, body.model, body.pivot)


async def _answer(call: Call[TranslateBody, Chosen]) -> Response:
    if not call.body.stream:
        translation = await call.model.translate(call.job)
        return JSONResponse(_translated(call.body, call.model, translation))
    items = await call.resources.enter_async_context(aclosing(call.model.stream(call.job)))
    first = await first_of(items, call.resources)
    call.tracked.outcome = Outcome.CANCELLED  # until its last event says otherwise
    events = events_of(_values(call, first, items), call.tracked, call.protocol)
    return EventStream(events, call.resources.pop_all())


TRANSLATE = Endpoint(
    protocol=replace(PROTOCOL, field_names=FIELD_NAMES),
    path="/translate",
    name="translate",
    description="Translate a text or a list of texts; with `stream`, as server-sent events.",
    body=TranslateBody,
    reader=reads_all(repeated="q"),
    find_model=_translator,
    answer=_answer,
    answer_type=Translated,
    example={"q": "A dog runs.", "source": "en", "target": "fr"},
    other_answers=described_events(_EVENTS),
)


async def _values(
    call: Call[TranslateBody, Chosen],
    first: Awaitable[TranslationDelta | Translation],
    rest: TranslationStream,
) -> AsyncGenerator[dict[str, Any], None]:
    yield _value(call, await first)
    async for item in rest:
        yield _value(call, item)


def _value(
    call: Call[TranslateBody, Chosen], item: TranslationDelta | Translation
) -> dict[str, Any]:
    if isinstance(item, Translation):
        return _translated(call.body, call.model, item)
    end = {"finish_reason": item.reason} if item.reason else {}
    return {"index": item.text, "sentence": item.sentence, "delta": item.piece, **end}


def _translated(body: TranslateBody, chosen: Chosen, translation: Translation) -> dict[str, Any]:
    """Leave out what was not asked for; of a single text nothing is in a list of its own."""
    answer: dict[str, list[Any]] = {"translatedText": list(translation.texts)}
    renderings = translation.renderings
    if not is_told(body.source):
        answer["detectedLanguage"] = list(map(detected, chosen.sources))
    if any(chosen.pivots):
        answer["pivot"] = list(chosen.pivots)
    if body.alternatives:
        answer["alternatives"] = [[other.text for other in others] for _, *others in renderings]
    if body.return_scores:
        answer["scores"] = [[each.score for each in ranked] for ranked in renderings]
    if body.return_scores or body.glossary or body.max_new_tokens is not None:
        answer["finish_reasons"] = [best.reason for best, *_ in renderings]
    if body.alignments:
        answer["alignments"] = [_alignment(best.alignment) for best, *_ in renderings]
    if body.return_attention is True:
        answer["attention"] = [list(map(asdict, best.attention)) for best, *_ in renderings]
    elif body.return_attention:
        check_size(look for best, *_ in renderings for sentence in best.seen for look in sentence)
        answer["attention"] = [list(map(described_looks, best.seen)) for best, *_ in renderings]
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

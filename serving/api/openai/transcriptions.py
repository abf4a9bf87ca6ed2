"""OpenAI's `/v1/audio/transcriptions` and `/v1/audio/translations`: the text of a recording.

The sound is decoded here, where the file is; models get samples, wherever they run.
"""

import asyncio
import re
import shutil
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir
from typing import Any, BinaryIO

from fastapi import Request

from serving.api.http.bodies import FieldReader, Fields, limit_body
from serving.api.http.endpoint import Endpoint
from serving.api.http.openapi import MULTIPART, describe_events
from serving.api.http.services import Services
from serving.api.http.uploads import OTHER_BYTES, read_form
from serving.api.openai.protocol import PROTOCOL, TranscriptionAnswer
from serving.api.openai.transcription_answers import answer_transcription
from serving.api.openai.transcription_body import SpeechTranslationBody, TranscriptionBody
from serving.audio.decoding import decode_audio
from serving.bundle.manifest import Task
from serving.errors import RequestError, StorageError
from serving.pipelines.catalog import Model

_FIELD_NAMES = {"source": "language", "previous_ids": "prompt", "text": "prompt"}
_SUFFIX = re.compile(r"\.[a-zA-Z0-9]{1,8}")
_NESTED = re.compile(r"(\w+)\[(\w*)\]")  # a part of a form that is in a list or an object


async def _find_model(services: Services, body: TranscriptionBody) -> Model:
    model = await services.catalog.get_model(body.model, Task.TRANSCRIBE)
    if body.language is not None:
        model.card.source_language(body.language)
    if body.translates:
        assert model.card.audio is not None
        if model.card.audio.translate is None:
            languages = ", ".join(model.card.source_languages)
            message = f"writes what is said in {languages}; it does not translate speech"
            raise RequestError("model", body.model, message)
    return model


@dataclass(frozen=True, kw_only=True)
class SpeechEndpoint(Endpoint[TranscriptionBody, Model]):
    """An endpoint that reads a form with a recording."""

    async def _read_fields(
        self, request: Request, services: Services, resources: AsyncExitStack
    ) -> Fields:
        max_bytes = services.audio_limits.max_mib * 2**20 + OTHER_BYTES
        limited = limit_body(request, max_bytes)
        resources.push_async_callback(limited.close)
        return await self.reader.read(limited)

    async def _load(
        self, body: TranscriptionBody, services: Services, model: Model
    ) -> TranscriptionBody:
        """Return the body with the samples of its file."""
        audio = model.card.audio
        assert audio is not None
        try:
            with NamedTemporaryFile(prefix="attendant-sound-") as copy:
                await asyncio.to_thread(_copy, body.file.file, copy)
                samples = await decode_audio(
                    Path(copy.name),
                    audio.sampling_rate,
                    _neutral_name(body.file.filename),
                    services.audio_limits.max_seconds,
                )
        except RequestError as error:
            raise RequestError("file", body.file.filename, error.message) from None
        except OSError as error:
            raise StorageError(
                gettempdir(), error.strerror or error, "name another folder with TMPDIR"
            ) from error
        language = body.language and model.card.source_language(body.language)
        return body.with_sound(samples, language, audio.sampling_rate, services.timeout_seconds)


def _neutral_name(name: str) -> str:
    """Return a name with the same ending, for the log, which has no text of clients."""
    suffix = Path(name).suffix
    return "recording" + suffix if _SUFFIX.fullmatch(suffix) else "recording"


def _copy(file: BinaryIO, copy: Any) -> None:
    """Copy a form's file, which has no name on disk, to one that another process can open."""
    file.seek(0)
    shutil.copyfileobj(file, copy)
    copy.flush()


async def _read_parts(request: Request) -> Fields:
    return nest_fields((await read_form(request)).multi_items())


def nest_fields(items: Iterable[tuple[str, Any]]) -> Fields:
    """Return the fields of a form: `name[]` is an item of a list, `name[key]` one of an object.
    Raises RequestError for names that contradict each other.
    """
    fields: Fields = {}
    for name, value in items:
        if match := _NESTED.fullmatch(name):
            name, key = match.groups()
            values = fields.setdefault(name, {} if key else [])
            if isinstance(values, dict) and key and key not in values:
                values[key] = value
            elif isinstance(values, list) and not key:
                values.append(value)
            else:
                raise RequestError(name, key, "is given in two forms, or twice")
        elif name in fields:
            raise RequestError(name, value, f"is given twice; the items of a list are {name}[]")
        else:
            fields[name] = value
    return fields


_COMMON: dict[str, Any] = {
    "protocol": replace(PROTOCOL, field_names=_FIELD_NAMES),
    "reader": FieldReader((MULTIPART,), _read_parts),
    "find_model": _find_model,
    "answer": answer_transcription,
    "answer_type": TranscriptionAnswer,
    "example": {"model": "whisper-tiny-en"},
    "other_answers": {
        "content": {
            "text/plain": {"schema": {"type": "string"}},
            **describe_events("With `stream`: deltas, then the whole text.")["content"],
        }
    },
}
TRANSCRIPTIONS = SpeechEndpoint(
    path="/audio/transcriptions",
    name="transcriptions",
    description="Write what is said in a recording; with `stream`, as server-sent events.",
    body=TranscriptionBody,
    id_prefix="transcr-",
    **_COMMON,
)
SPEECH_TRANSLATIONS = SpeechEndpoint(
    path="/audio/translations",
    name="speech_translations",
    description="Write in English what is said in a recording; with `stream`, as server-sent "
    "events.",
    body=SpeechTranslationBody,
    id_prefix="transl-",
    **_COMMON,
)

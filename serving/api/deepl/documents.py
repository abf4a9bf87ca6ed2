"""DeepL's documents: upload, status, and the result, which is fetched once."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.deepl.protocol import BODY_STATUSES, PROTOCOL
from serving.api.deepl.translate import MAX_GLOSSARIES, STYLE_REFUSALS, NameList
from serving.api.http.authentication import KeyCheck
from serving.api.http.bodies import (
    Fields,
    FieldsBody,
    NoOpValues,
    Refusals,
    limit_body,
    parse,
    reads_json_or_form,
)
from serving.api.http.memories import DEFAULT_THRESHOLD, find_memory
from serving.api.http.openapi import JSON, MULTIPART, URL_ENCODED, DescribedBody
from serving.api.http.routing import Routes, query_parameters
from serving.api.http.services import Services
from serving.api.http.uploads import (
    RESULT,
    File,
    QualityThreshold,
    file_response,
    queue_document,
    receive_upload,
)
from serving.documents.formats.registry import file_extension, result_name
from serving.errors import RequestError
from serving.glossaries.entries import GlossaryPair
from serving.jobs.documents import DocumentJob, Handle, seconds_remaining
from serving.jobs.table import JobState
from serving.observability.request_stats import current_key

_READER = reads_json_or_form()
_MAX_SEGMENTS = 100
_MAX_KEY_BYTES = 4096  # of a body that holds only the key of a document


class DocumentBody(FieldsBody):
    """A document to translate. filename: replaces the file's own name. output_format: must be that
    of the result; a .pot becomes a .po. formality: not supported by any model. model: an
    extension, the name of a model. quality_threshold: an extension, from 0 to 1; of .po and XLIFF,
    translations that seem worse are marked for review, and only these.
    enable_document_minification: without effect. translation_memory_id,
    translation_memory_threshold: as in `/v2/translate`.
    """

    model_config = ConfigDict(extra="forbid")
    no_op_values: ClassVar[NoOpValues] = dict.fromkeys(
        ("glossary_id", "glossary_ids", "source_lang", "style_id", "translation_memory_id"), ("",)
    )
    refusals: ClassVar[Refusals] = STYLE_REFUSALS

    file: File
    target_lang: str
    source_lang: str | None = None
    filename: str | None = None
    output_format: str | None = None
    formality: Literal["default", "prefer_more", "prefer_less"] = "default"
    glossary_id: str | None = None
    glossary_ids: NameList | None = None
    enable_document_minification: Any = None
    translation_memory_id: str | None = None
    translation_memory_threshold: Annotated[int, Field(ge=0, le=100)] = DEFAULT_THRESHOLD
    model: str | None = None
    quality_threshold: QualityThreshold | None = None

    @property
    def glossaries(self) -> list[str]:
        return [self.glossary_id] if self.glossary_id else self.glossary_ids or []

    def check(self) -> None:
        if self.filename:
            self.file.filename = self.filename
        extension = result_name(self.file.filename).rpartition(".")[2].lower()
        if self.output_format not in (None, extension, file_extension(self.file.filename)):
            message = f"must be the result's, {extension}"
            raise RequestError("output_format", self.output_format, message)
        if self.glossaries and self.source_lang is None:
            raise RequestError("source_lang", None, "is required with a glossary")
        if self.glossary_id and self.glossary_ids:
            raise RequestError("glossary_ids", self.glossary_ids, "needs glossary_id to be absent")
        if len(self.glossaries) > MAX_GLOSSARIES:
            message = f"at most {MAX_GLOSSARIES} glossaries"
            raise RequestError("glossary_ids", len(self.glossaries), message)


class KeyBody(FieldsBody):
    """The key of a document."""

    model_config = ConfigDict(extra="forbid")

    document_key: str


class Uploaded(TypedDict):
    document_id: str
    document_key: str


class Segment(TypedDict):
    """A paragraph of a document without its formatting, and its translation; null until there is
    one.
    """

    source: str
    target: str | None


class Segments(TypedDict):
    """The first paragraphs of a document, at most 100."""

    segments: list[Segment]


class DocumentStatus(TypedDict):
    """The status. fragments, fragments_done: extensions, numbers of paragraphs."""

    document_id: str
    status: Literal["queued", "translating", "done", "error"]
    seconds_remaining: NotRequired[int]
    billed_characters: NotRequired[int]
    error_message: NotRequired[str]
    fragments: int
    fragments_done: int


def add_documents(routes: Routes, services: Services) -> None:
    async def upload_document(request: Request) -> JSONResponse:
        """Queue a document for translation."""
        async with receive_upload(request, services, PROTOCOL, DocumentBody) as body:
            body.check()
            glossary_of = partial(_glossary, services, body) if body.glossaries else None
            languages = (body.source_lang, body.target_lang)
            memory = await find_memory(
                services,
                body.translation_memory_id,
                body.translation_memory_threshold,
                *languages,
            )
            handle = await queue_document(
                services,
                body.file,
                *languages,
                body.model,
                glossary_of,
                memory,
                body.quality_threshold,
            )
            return JSONResponse({"document_id": handle.id, "document_key": handle.key})

    async def document_status(request: Request, document_id: str) -> JSONResponse:
        """Return the status of a document."""
        async with _handle(request, services, document_id) as handle:
            return JSONResponse(_status(await services.documents.job(handle, current_key())))

    async def document_segments(request: Request, document_id: str) -> JSONResponse:
        """Return the first paragraphs of a document with their translations, to compare them.

        DeepL has no such route.
        """
        async with _handle(request, services, document_id) as handle:
            segments = await services.documents.segments(handle, current_key(), _MAX_SEGMENTS)
            pairs = [{"source": source, "target": target} for source, target in segments]
            return JSONResponse({"segments": pairs})

    async def document_result(request: Request, document_id: str) -> Response:
        """Return a translated document, once: then it is deleted."""
        async with _handle(request, services, document_id) as handle:
            result = await services.documents.take_result(handle, current_key())
            return file_response(result.job, result.file, result)

    async def cancel_document(request: Request, document_id: str) -> Response:
        """Stop translating a document, and delete it. DeepL has no such route."""
        async with _handle(request, services, document_id, dict(request.query_params)) as handle:
            job = await services.documents.job(handle, current_key())
            await services.documents.remove(job.id)
            return Response(status_code=204)

    upload = DescribedBody(DocumentBody, (MULTIPART,), {"target_lang": "FR"})
    key = DescribedBody(KeyBody, (JSON, URL_ENCODED), {"document_key": "..."})
    one, result = "/document/{document_id}", "/document/{document_id}/result"
    # Handlers check keys themselves, so that these requests are counted in the metrics.
    common: dict[str, Any] = {"statuses": BODY_STATUSES, "key_check": KeyCheck.IN_HANDLER}
    without_json = common | {"response_class": Response}
    routes.add("POST", "/document", upload_document, Uploaded, body=upload, **common)
    routes.add("POST", one, document_status, DocumentStatus, body=key, **common)
    routes.add("POST", result, document_result, None, body=key, content=RESULT, **without_json)
    routes.add("POST", f"{one}/segments", document_segments, Segments, body=key, **common)
    routes.add(
        *("DELETE", one, cancel_document, None),
        status=204,
        extra=query_parameters("document_key"),
        content={"description": "It is forgotten."},
        **without_json,
    )


@asynccontextmanager
async def _handle(
    request: Request, services: Services, document_id: str, fields: Fields | None = None
) -> AsyncIterator[Handle]:
    """Admit a request with the key of a document in its fields or its body."""
    authenticator = services.authenticator
    async with AsyncExitStack() as resources:
        resources.enter_context(services.metrics.track(PROTOCOL.name))
        if authenticator:
            authenticator.check_headers(PROTOCOL, request.headers)
        if fields is None:
            fields = await _READER.read(limit_body(request, _MAX_KEY_BYTES))
        if authenticator:
            admit = authenticator.admit(PROTOCOL, request.headers, fields)
            await resources.enter_async_context(admit)
        yield Handle(document_id, parse(KeyBody, fields).document_key)


async def _glossary(services: Services, body: DocumentBody, texts: Sequence[str]) -> dict[str, str]:
    pair = GlossaryPair.from_codes(body.source_lang or "", body.target_lang)
    entries = await services.glossaries.occurring(current_key(), body.glossaries, pair, texts)
    return {entry.term: entry.translations[0] for entry in entries}


def _status(job: DocumentJob) -> dict[str, Any]:
    statuses = {JobState.COMPLETED: "done", JobState.FAILED: "error"}
    in_queue = "translating" if job.worker else "queued"
    status: dict[str, Any] = {
        "document_id": job.id,
        "status": statuses.get(job.state, in_queue),
        "fragments": job.data.num_fragments,
        "fragments_done": job.num_results,
    }
    seconds = seconds_remaining(job)
    if seconds is not None:
        status["seconds_remaining"] = math.ceil(seconds)
    if job.state is JobState.COMPLETED:
        status["billed_characters"] = job.data.num_characters
    if job.state is JobState.FAILED:
        status["error_message"] = job.data.error
    return status

"""Uploads of files, and downloads of translated documents, for all protocols.

Files are written and read in pieces.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import Request
from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from serving.api.http.bodies import AnyBody, Fields, limit_body, parse
from serving.api.http.openapi import MULTIPART
from serving.api.http.protocol import Protocol
from serving.api.http.services import Services
from serving.documents.formats.registry import FORMATS, file_extension, result_name
from serving.errors import RequestError, StorageError
from serving.jobs.documents import DocumentJob, Handle, TakenResult
from serving.observability.request_stats import current_key
from serving.pipelines.routing import identify_document_sources
from serving.pipelines.translation.job import MemoryUse
from serving.text.language_identification import is_explicit

OTHER_BYTES = 65_536  # of all fields besides the file
_MAX_FIELDS = 100  # of a form with a file; the largest body has a dozen
_CHUNK_BYTES = 2**18  # read on a thread and sent at once
_HOST = re.compile(r"[\w.-]+(:\d+)?|\[[\da-fA-F:.]+\](:\d+)?")
_PREFIX = re.compile(r"(/[\w.~-]+)+/?")
GlossaryOf = Callable[[Sequence[str]], Awaitable[dict[str, str]]]


def _is_file(value: Any) -> Any:
    if not isinstance(value, UploadFile) or not value.filename:
        raise ValueError("must be a file with a name")
    return value


File = Annotated[
    Any, BeforeValidator(_is_file), WithJsonSchema({"type": "string", "format": "binary"})
]
# Translations whose expected quality is lower are marked for review.
QualityThreshold = Annotated[float, Field(ge=0, le=1)]
# How OpenAPI describes an answer that is a translated document.
RESULT = {
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    "description": "The translated document.",
}


def base_url(request: Request) -> str:
    """Return the address by which the client knows this server: behind a proxy what it says in
    `X-Forwarded-Host` and `X-Forwarded-Prefix`. (uvicorn has read `X-Forwarded-Proto`.)
    """
    url = request.base_url
    host, prefix = (
        request.headers.get(f"x-forwarded-{name}", "").partition(",")[0].strip()
        for name in ("host", "prefix")
    )
    if _HOST.fullmatch(host):
        url = url.replace(netloc=host)
    if _PREFIX.fullmatch(prefix):
        url = url.replace(path=f"{prefix.rstrip('/')}{url.path}")
    return str(url)


@asynccontextmanager
async def receive_upload(
    request: Request,
    services: Services,
    protocol: Protocol,
    cls: type[AnyBody],
    max_mib: int | None = None,
) -> AsyncIterator[AnyBody]:
    """Admit a request with a file, and yield its body. The file is closed after the block.

    max_mib: of the file; None is the limit of documents.
    Raises KeyRefused, RateExceeded, RequestError and TooLarge.
    """
    authenticator = services.authenticator
    async with AsyncExitStack() as resources:
        resources.enter_context(services.metrics.track(protocol.name))
        if authenticator:
            authenticator.check_headers(protocol, request.headers)
        max_mib = services.document_limits.max_mib if max_mib is None else max_mib
        max_bytes = max_mib * 2**20 + OTHER_BYTES
        fields = await resources.enter_async_context(_read_form(limit_body(request, max_bytes)))
        if authenticator:
            places = {**request.query_params, **fields}  # either may have the key
            admit = authenticator.admit(protocol, request.headers, places)
            await resources.enter_async_context(admit)
        yield parse(cls, fields)


async def queue_document(
    services: Services,
    file: UploadFile,
    source: str | None,
    target: str,
    model: str | None = None,
    glossary_of: GlossaryOf | None = None,
    memory: MemoryUse | None = None,
    quality_threshold: float | None = None,
) -> Handle:
    """Queue a document for translation. The characters that models translate are billed once it is
    queued.

    source: None or "auto" is identified. glossary_of: returns the terms that occur in texts.
    memory: the translation memory that it is translated with.
    quality_threshold: as in `DocumentData`.
    """
    owner = current_key()
    name = Path(file.filename or "").name
    languages = source if is_explicit(source) else None, target
    async with services.documents.receive(file.file, name, *languages) as document:
        sources = await identify_document_sources(services, document.texts, source, target, model)
        glossary = await glossary_of(document.texts) if glossary_of else None
        async with services.quota.reserve(owner, sources.num_billed):
            return await services.documents.queue(
                *(document, owner, sources, target, model, glossary),
                memory,
                quality_threshold,
            )


def file_response(
    job: DocumentJob, file: BinaryIO, one_time: TakenResult | None = None
) -> StreamingResponse:
    """Send a translated document and close it. one_time: it is sent once, and deleted before its
    last byte.
    """
    name = result_name(job.data.name)
    media_type = FORMATS[file_extension(name)].media_type
    headers = {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}",
        "X-Content-Type-Options": "nosniff",
    }
    chunks = read_chunks_once(one_time) if one_time else read_chunks(file)
    return StreamingResponse(chunks, media_type=media_type, headers=headers)


async def read_chunks(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    """Yield a file in pieces, and close it."""
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk


async def read_chunks_once(result: TakenResult) -> AsyncGenerator[bytes, None]:
    """Yield a file in pieces, and delete its document before the last byte; if the client goes
    before, it can be fetched again.
    """
    is_whole = False
    try:
        last = b""
        async with aclosing(read_chunks(result.file)) as chunks:
            async for chunk in chunks:
                yield last + chunk[:-1]
                last = chunk[-1:]
        await result.mark_sent()
        is_whole = True
        yield last
    finally:
        if not is_whole:  # in a task of its own: this one may have been cancelled
            _hold_reference(asyncio.ensure_future(result.mark_interrupted()))


_running: set[asyncio.Future[None]] = set()


def _hold_reference(task: asyncio.Future[None]) -> None:
    """Hold a reference to a task until it is done, as asyncio asks for."""
    _running.add(task)
    task.add_done_callback(_running.discard)


@asynccontextmanager
async def _read_form(request: Request) -> AsyncIterator[Fields]:
    """Read a multipart form; a field that is given more than once has a list of values. Its file
    is closed after the block.
    """
    form = await read_form(request)
    try:
        yield {name: values if values[1:] else values[0] for name, values in _field_values(form)}
    finally:
        await form.close()


async def read_form(request: Request) -> FormData:
    """Return a multipart form with at most one file, which is on disk if it has more than 1 MiB.
    Closing the request, or the form, deletes it. Raises RequestError and StorageError.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != MULTIPART:
        raise RequestError("body", content_type, f"must be {MULTIPART}, with a file")
    try:
        return await request.form(max_files=1, max_fields=_MAX_FIELDS)
    except HTTPException as error:  # Starlette raises it for any mistake in a form
        message = f"is not a form in parts: {error.detail}"
        raise RequestError("body", content_type, message) from None
    except OSError as error:  # a file of more than 1 MiB goes to the folder of temporary files
        raise StorageError(
            gettempdir(), error.strerror or error, "name another folder with TMPDIR"
        ) from error


def _field_values(form: FormData) -> Iterator[tuple[str, list[Any]]]:
    return ((name, form.getlist(name)) for name in form)

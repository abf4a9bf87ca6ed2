"""DeepL's `/v3/translation_memories`: TMX files in and out, lists, and units.

DeepL's clients import in three steps: they announce a file, send it to an address that holds a
secret instead of a key, and ask for the state of the import. An export is ready at once; its job
has the id of the memory.
"""

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.deepl.protocol import BODY_STATUSES
from serving.api.http.authentication import KeyCheck
from serving.api.http.bodies import READS_JSON, FieldsBody, NoOpValues, limit_body, parse
from serving.api.http.openapi import COMMON_STATUSES, DescribedBody
from serving.api.http.routing import Routes
from serving.api.http.services import Services
from serving.api.http.uploads import base_url
from serving.errors import RequestError, TooLarge, TranslationMemoryNotFound
from serving.jobs.memory_imports import MemoryImport
from serving.jobs.table import JobState
from serving.observability.request_stats import current_key
from serving.text.checks import check_text
from serving.translation_memory.store import (
    PAGE_UNITS,
    UPLOAD_HOURS,
    MemoryState,
    StoredUnit,
    TranslationMemory,
)
from serving.translation_memory.tmx import TMX_END, format_unit, tmx_header

_MEMORIES = "/translation_memories"
_MEMORY = _MEMORIES + "/{translation_memory_id}"
_FILE = _MEMORIES + "/files/{file_id}"
_MAX_NAME_CHARACTERS = 100
_MAX_BODY_BYTES = 65_536
_MAX_PAGE = 25  # memories of a page
_MAX_SEGMENTS = 100  # units of a page
_MEMORY_STATUSES = (404, *COMMON_STATUSES)
_AWAITED = "Upload the TMX file to the upload_url."


class _ImportPart(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class SourceFile(_ImportPart):
    file_name: Annotated[str, Field(min_length=1, max_length=_MAX_NAME_CHARACTERS)]
    content_length: Annotated[int, Field(gt=0)]
    content_type: Literal["application/xml", "text/xml", "application/x-tmx+xml"] | None = None


class ImportParameters(_ImportPart):
    display_name: Annotated[str, Field(min_length=1, max_length=1024)] | None = None


class ImportBody(FieldsBody):
    """The body of `POST /v3/translation_memories/import`: a TMX file that will be sent."""

    model_config = ConfigDict(extra="forbid")
    no_op_values: ClassVar[NoOpValues] = {}

    source_file: SourceFile
    """The file's name, and its size in bytes."""
    parameters: ImportParameters = Field(default_factory=ImportParameters)
    """The name of the memory; by default that of the file."""


class TranslationMemoryInfo(TypedDict):
    translation_memory_id: str
    name: str
    source_language: str
    target_languages: list[str]
    segment_count: int
    creation_time: str
    updated_time: str


class TranslationMemoryList(TypedDict):
    translation_memories: list[TranslationMemoryInfo]


class ImportJob(TypedDict):
    """expires_at: until when the file must come."""

    job_id: str
    upload_url: str
    expires_at: str


class ExportJob(TypedDict):
    job_id: str
    parameters: dict[str, str]


class JobStatus(TypedDict):
    job_id: str
    product: Literal["translation_memory"]
    operation: Literal["import", "export"]
    creation_time: str
    updated_time: NotRequired[str]
    parameters: dict[str, str]
    results: list[dict[str, Any]]


class SegmentPage(TypedDict):
    """next_page_cursor: missing on the last page."""

    segments: list[dict[str, Any]]
    segment_count: int
    next_page_cursor: NotRequired[str]


def _query(**parameters: str) -> dict[str, Any]:
    """Describe optional parameters of the query, for OpenAPI."""
    schema = {"in": "query", "schema": {"type": "string"}}
    return {
        "parameters": [
            {"name": name, "description": text, **schema} for name, text in parameters.items()
        ]
    }


_FILE_ROUTE: dict[str, Any] = {
    "statuses": (404, *BODY_STATUSES),
    "key_check": KeyCheck.NONE,
    "extra": _query(secret="as in the address"),
}


def add_memories(routes: Routes, services: Services) -> None:
    """Add `/v3/translation_memories`."""
    memories = services.memories

    async def list_memories(request: Request) -> JSONResponse:
        """List the translation memories, page by page."""
        size = _number(request, "page_size", 1, _MAX_PAGE, _MAX_PAGE)
        start = size * _number(request, "page", 0, 10**6, 0)
        all_memories = await memories.list_memories(current_key())
        page = [_describe_memory(memory) for memory in all_memories[start : start + size]]
        return JSONResponse({"translation_memories": page})

    async def get(request: Request, translation_memory_id: str) -> JSONResponse:
        """Describe a translation memory."""
        return JSONResponse(
            _describe_memory(await memories.get(current_key(), translation_memory_id))
        )

    async def delete(request: Request, translation_memory_id: str) -> Response:
        """Delete a translation memory."""
        await memories.remove(current_key(), translation_memory_id)
        return Response(status_code=204)

    async def segments(request: Request, translation_memory_id: str) -> JSONResponse:
        """Return one page of the units of a memory."""
        memory = await memories.get(current_key(), translation_memory_id)
        size = _number(request, "page_size", 1, _MAX_SEGMENTS, 50)
        after = _number(request, "page_cursor", 0, 2**62, 0)
        text = request.query_params.get("filter_text", "")
        is_case_sensitive = request.query_params.get("filter_case_sensitive") == "true"
        units = await memories.list_units(memory.number, after, size + 1, text, is_case_sensitive)
        page: dict[str, Any] = {
            "segments": [*map(_describe_unit, units[:size])],
            "segment_count": memory.num_units,
        }
        if len(units) > size:
            page["next_page_cursor"] = str(units[size - 1].number)
        return JSONResponse(page)

    listing = _query(page_size=f"1 to {_MAX_PAGE}", page="from 0")
    paging = _query(
        page_size=f"1 to {_MAX_SEGMENTS}",
        page_cursor="of the page before",
        filter_text="occurs in the source or in a target",
        filter_case_sensitive="true or false",
    )
    routes.add(
        "GET",
        _MEMORIES,
        list_memories,
        TranslationMemoryList,
        (400, *COMMON_STATUSES),
        extra=listing,
    )
    _add_imports(routes, services)
    _add_exports(routes, services)
    routes.add("GET", _MEMORY, get, TranslationMemoryInfo, _MEMORY_STATUSES)
    routes.add("DELETE", _MEMORY, delete, None, _MEMORY_STATUSES, status=204)
    statuses = (400, *_MEMORY_STATUSES)
    routes.add("GET", _MEMORY + "/segments", segments, SegmentPage, statuses, extra=paging)


def _add_imports(routes: Routes, services: Services) -> None:
    memories, imports = services.memories, services.memory_imports
    max_bytes = services.document_limits.memory_mib * 2**20

    async def announce(request: Request) -> JSONResponse:
        """Announce a TMX file, from which a translation memory will be made."""
        fields = await READS_JSON.read(limit_body(request, _MAX_BODY_BYTES))
        body = parse(ImportBody, fields)
        size = body.source_file.content_length
        if size > max_bytes:
            raise TooLarge("source_file.content_length", size, f"must be at most {max_bytes}")
        name = body.parameters.display_name or body.source_file.file_name
        check_text("display_name", name)
        memory = await memories.create(current_key(), name)
        expires = datetime.fromisoformat(memory.created) + timedelta(hours=UPLOAD_HOURS)
        return JSONResponse(
            {
                "job_id": memory.import_job,
                "upload_url": _file_url(request, memory.import_job, memory.secret),
                "expires_at": expires.isoformat().replace("+00:00", "Z"),
            },
            202,
        )

    async def upload(request: Request, file_id: str) -> Response:
        """Receive an announced file. The address is secret, no key is needed."""
        memory = await memories.get_by_secret(file_id, request.query_params.get("secret", ""))
        if file_id != memory.import_job or memory.state is not MemoryState.IMPORTING:
            raise RequestError("file", memory.name, "was received already")
        chunks = limit_body(request, max_bytes).stream()
        await imports.receive(memory, chunks)
        return Response(status_code=200)

    async def job_status(request: Request, job_id: str) -> JSONResponse:
        """Return the state of an import or an export."""
        job = await imports.find(job_id)
        if job is not None and job.state is JobState.FAILED and job.owner == current_key():
            return JSONResponse(_failure_status(job))
        try:
            memory = await memories.get_by_import(current_key(), job_id)
        except TranslationMemoryNotFound:
            return JSONResponse(_export_status(request, await memories.get(current_key(), job_id)))
        return JSONResponse(_import_status(memory, job))

    example = {"source_file": {"file_name": "team.tmx", "content_length": 1024}}
    body = DescribedBody(ImportBody, READS_JSON.media_types, example)
    path = _MEMORIES + "/import"
    routes.add("POST", path, announce, ImportJob, BODY_STATUSES, status=202, body=body)
    routes.add("PUT", _FILE, upload, None, **_FILE_ROUTE)
    routes.add("GET", _MEMORIES + "/jobs/{job_id}", job_status, JobStatus, _MEMORY_STATUSES)


def _add_exports(routes: Routes, services: Services) -> None:
    memories = services.memories

    async def download(request: Request, file_id: str) -> Response:
        """Return a translation memory as TMX. The address is secret, no key is needed."""
        memory = await memories.get_by_secret(file_id, request.query_params.get("secret", ""))
        if file_id != memory.id or memory.state is not MemoryState.COMPLETE:
            raise TranslationMemoryNotFound(file_id)
        return StreamingResponse(_tmx(services, memory), media_type="application/xml")

    async def export(request: Request, translation_memory_id: str) -> JSONResponse:
        """Export a translation memory; its job is done at once."""
        memory = await memories.get(current_key(), translation_memory_id)
        job = {"job_id": memory.id, "parameters": {"translation_memory_id": memory.id}}
        return JSONResponse(job, 202)

    tmx = {"content": {"application/xml": {}}, "description": "A TMX file."}
    routes.add("GET", _FILE, download, None, content=tmx, response_class=Response, **_FILE_ROUTE)
    routes.add("POST", _MEMORY + "/export", export, ExportJob, _MEMORY_STATUSES, status=202)


def _number(request: Request, name: str, low: int, high: int, default: int) -> int:
    """Return a number of the query. Raises RequestError."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and low <= int(text[:20]) <= high):
        raise RequestError(name, text, f"must be between {low} and {high}")
    return int(text)


def _file_url(request: Request, file_id: str, secret: str) -> str:
    return f"{base_url(request)}v3{_FILE.format(file_id=file_id)}?secret={secret}"


async def _tmx(services: Services, memory: TranslationMemory) -> AsyncGenerator[bytes, None]:
    """Yield a memory as TMX, page by page."""
    yield tmx_header(memory.source).encode()
    after = 0
    while units := await services.memories.list_units(memory.number, after):
        after = units[-1].number
        lines = (format_unit(memory.source, stored.unit) for stored in units)
        yield "".join(await asyncio.to_thread(list, lines)).encode()
        if len(units) < PAGE_UNITS:
            break
    yield TMX_END.encode()


def _describe_memory(memory: TranslationMemory) -> dict[str, Any]:
    return {
        "translation_memory_id": memory.id,
        "name": memory.name,
        "source_language": memory.source,
        "target_languages": list(memory.targets),
        "segment_count": memory.num_units,
        "creation_time": memory.created,
        "updated_time": memory.updated,
    }


def _describe_unit(stored: StoredUnit) -> dict[str, Any]:
    return {
        "source_segment_id": str(stored.number),
        "source_text": stored.unit.source.text,
        "creation_time": stored.created,
        "targets": [
            {
                "target_segment_id": f"{stored.number}-{language}",
                "target_language": language,
                "target_text": target.text,
                "creation_time": stored.created,
            }
            for language, target in stored.unit.targets.items()
        ],
    }


def _job(operation: str, identity: str, created: str, result: dict[str, Any]) -> dict[str, Any]:
    return {
        "job_id": identity,
        "product": "translation_memory",
        "operation": operation,
        "creation_time": created,
        "results": [result],
    }


def _import_status(memory: TranslationMemory, job: MemoryImport | None) -> dict[str, Any]:
    if memory.state is MemoryState.COMPLETE and (job is None or job.state is JobState.COMPLETED):
        result: dict[str, Any] = {
            "status": "completed",
            "translation_memory_id": memory.id,
            "skipped_segment_count": job.data.num_skipped if job else 0,
        }
    elif job is None:
        result = {"status": "awaiting_input", "status_metadata": {"required_action": _AWAITED}}
    else:
        result = {"status": "processing"}
    status = _job("import", memory.import_job, memory.created, result)
    return status | {"parameters": {"display_name": memory.name}, "updated_time": memory.updated}


def _failure_status(job: MemoryImport) -> dict[str, Any]:
    created = datetime.fromtimestamp(job.created_at).astimezone().isoformat()
    result = {"status": "failed", "error": {"message": job.data.error}}
    return _job("import", job.id, created, result) | {"parameters": {}}


def _export_status(request: Request, memory: TranslationMemory) -> dict[str, Any]:
    url = _file_url(request, memory.id, memory.secret)
    result = {"status": "completed", "download_url": url}
    status = _job("export", memory.id, memory.created, result)
    return status | {"parameters": {"translation_memory_id": memory.id}}

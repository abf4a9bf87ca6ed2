"""OpenAI's `/v1/files` and `/v1/batches`: files of requests, answered at a low priority."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ConfigDict, Field

from serving.api.http.authentication import KeyCheck
from serving.api.http.bodies import READS_JSON, FieldsBody
from serving.api.http.endpoint import Endpoint, SimpleEndpoint
from serving.api.http.openapi import BODY_STATUSES, MODEL_STATUSES, MULTIPART, DescribedBody
from serving.api.http.protocol import ENDS, RequestInfo, current_request, log_failure
from serving.api.http.routing import ProtocolRoute, Routes
from serving.api.http.services import Services
from serving.api.http.uploads import File, read_chunks, receive_upload
from serving.api.openai.encoders import EMBEDDINGS
from serving.api.openai.protocol import PROTOCOL, Batch, BatchList, Deleted, FileList, FileObject
from serving.api.openai.routes import CHATS, COMPLETIONS, RESPONSES
from serving.errors import (
    EngineStopped,
    KeyRefused,
    ModelNotFound,
    OutOfMemory,
    Overloaded,
    RateExceeded,
    RequestError,
    StorageError,
)
from serving.jobs import batches as jobs
from serving.jobs.batches import INPUT_PURPOSE, MAX_FILE_MIB, WINDOW, Batches, BatchRequest
from serving.jobs.table import FileRecord, JobState
from serving.observability.request_stats import collect_request_stats, current_key

_PRIORITY = 1_000  # lower values come first; 0 is the default of other requests
_TEMPORARY = (Overloaded, RateExceeded, EngineStopped, OutOfMemory, StorageError)
_WAIT_SECONDS = 5.0  # until the next try, where the error names no time
_MIN_WAIT_SECONDS = 0.1
_MAX_WAIT_SECONDS = 30.0  # so that a batch goes on soon after a long outage
_STARTING_SECONDS = 120.0  # other worker groups may still load their models
_MAX_LISTED = 100
_ORDERS = ("asc", "desc")
_PATHS: dict[str, Endpoint[Any, Any]] = {
    endpoint.protocol.prefix + endpoint.path: endpoint
    for endpoint in (COMPLETIONS, CHATS, RESPONSES, EMBEDDINGS)
}
_OBJECT_STATUSES = (400, *MODEL_STATUSES)
AnyRecord = TypeVar("AnyRecord", FileRecord, jobs.Batch)


class BatchFileBody(FieldsBody):
    """A file of requests."""

    model_config = ConfigDict(extra="forbid")

    file: File
    purpose: Literal["batch"]


class BatchBody(FieldsBody):
    """A batch: all lines of a file are requests to one endpoint."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input_file_id: str
    endpoint: Literal["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"]
    completion_window: Literal["24h"]
    metadata: Annotated[dict[str, str], Field(max_length=16)] = Field(default_factory=dict)


def make_batches(services: Services) -> Batches:
    return Batches(services.jobs, BatchLines(services, _PATHS))


def routes(services: Services, batches: Batches) -> list[ProtocolRoute]:
    routes = Routes(PROTOCOL, "OpenAI", services.authenticator)
    _add_files(routes, services, batches)
    _add_batches(routes, services, batches)
    return routes.routes


def _add_files(routes: Routes, services: Services, batches: Batches) -> None:
    async def upload(request: Request) -> JSONResponse:
        """Store a file of requests, one JSON object a line, for 30 days."""
        async with receive_upload(request, services, PROTOCOL, BatchFileBody, MAX_FILE_MIB) as body:
            name = Path(body.file.filename).name
            return JSONResponse(_file(await batches.add_file(current_key(), name, body.file.file)))

    async def files(request: Request) -> JSONResponse:
        """List files, the newest first, or with `order=asc` last; `after` and `limit` page."""
        query = _query(request, "after", "limit", "order", "purpose")
        records = await batches.files_of(current_key())
        if purpose := query.get("purpose"):
            records = [record for record in records if record.purpose == purpose]
        if (order := query.get("order", "desc")) not in _ORDERS:
            raise RequestError("order", order, f"must be {' or '.join(_ORDERS)}")
        return JSONResponse(_page(query, records if order == "desc" else records[::-1], _file))

    async def file(request: Request, file_id: str) -> JSONResponse:
        """Describe a file."""
        return JSONResponse(_file(await batches.file(current_key(), file_id)))

    async def content(request: Request, file_id: str) -> StreamingResponse:
        """Return the content of a file."""
        file = await batches.open_file(current_key(), file_id)
        return StreamingResponse(read_chunks(file), media_type="application/jsonl")

    async def delete(request: Request, file_id: str) -> JSONResponse:
        """Delete a file."""
        await batches.delete_file(current_key(), file_id)
        return JSONResponse({"id": file_id, "object": "file", "deleted": True})

    body = DescribedBody(BatchFileBody, (MULTIPART,), {"purpose": INPUT_PURPOSE})
    routes.add(
        *("POST", "/files", upload, FileObject, BODY_STATUSES),
        body=body,
        key_check=KeyCheck.IN_HANDLER,
    )
    routes.add("GET", "/files", files, FileList, _OBJECT_STATUSES)
    routes.add("GET", "/files/{file_id}", file, FileObject, MODEL_STATUSES)
    routes.add("GET", "/files/{file_id}/content", content, None, MODEL_STATUSES)
    routes.add("DELETE", "/files/{file_id}", delete, Deleted, _OBJECT_STATUSES)


def _add_batches(routes: Routes, services: Services, batches: Batches) -> None:
    async def create(_: Services, body: BatchBody) -> dict[str, Any]:
        arguments = (body.endpoint, body.input_file_id, body.metadata)
        return _batch(await batches.create(current_key(), *arguments))

    async def list_batches(request: Request) -> JSONResponse:
        """List batches, the newest first; `after` and `limit` page."""
        query = _query(request, "after", "limit")
        return JSONResponse(_page(query, await batches.batches_of(current_key()), _batch))

    async def batch(request: Request, batch_id: str) -> JSONResponse:
        """Return the state of a batch."""
        return JSONResponse(_batch(await batches.batch(current_key(), batch_id)))

    async def cancel(request: Request, batch_id: str) -> JSONResponse:
        """Cancel a batch; it ends with the answers so far."""
        return JSONResponse(_batch(await batches.cancel(current_key(), batch_id)))

    SimpleEndpoint(
        protocol=PROTOCOL,
        path="/batches",
        name="create_batch",
        description="Have the requests of a file answered, after everybody who waits.",
        body=BatchBody,
        reader=READS_JSON,
        answer=create,
        answer_type=Batch,
        example={
            "input_file_id": "file-abc",
            "endpoint": "/v1/chat/completions",
            "completion_window": WINDOW,
        },
    ).add_to(routes, services)
    routes.add("GET", "/batches", list_batches, BatchList, _OBJECT_STATUSES)
    routes.add("GET", "/batches/{batch_id}", batch, Batch, MODEL_STATUSES)
    routes.add("POST", "/batches/{batch_id}/cancel", cancel, Batch, _OBJECT_STATUSES)


def _query(request: Request, *names: str) -> dict[str, str]:
    """Return the fields of the query. Raises RequestError for the first that is not in `names`."""
    query = dict(request.query_params)
    for name, value in query.items():
        if name not in names:
            raise RequestError(name, value, "is not supported here")
    return query


def _page(query: Mapping[str, str], records: Sequence[AnyRecord], described: Any) -> dict[str, Any]:
    """Return one page of a list. Raises RequestError for a wrong limit."""
    limit = query.get("limit", str(_MAX_LISTED))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:6]) <= 10_000):
        raise RequestError("limit", limit, "must be between 1 and 10000")
    ids = [record.id for record in records]
    after = query.get("after")
    start = ids.index(after) + 1 if after in ids else 0
    page = records[start : start + int(limit)]
    return {
        "object": "list",
        "data": [described(record) for record in page],
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
        "has_more": start + len(page) < len(records),
    }


def _file(record: FileRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "object": "file",
        "bytes": record.num_bytes,
        "created_at": record.created_at,
        "expires_at": record.kept_until,
        "filename": record.name,
        "purpose": record.purpose,
        "status": "processed",
    }


def _batch(job: jobs.Batch) -> dict[str, Any]:
    data = job.data
    return {
        "id": job.id,
        "object": "batch",
        "endpoint": data.endpoint,
        "errors": {"object": "list", "data": data.problems} if data.problems else None,
        "input_file_id": data.input_file,
        "completion_window": data.window,
        "status": "validating" if job.state is JobState.QUEUED else job.state,
        "output_file_id": data.output_file,
        "error_file_id": data.error_file,
        "created_at": int(job.created_at),
        "expires_at": data.expires_at,
        **{
            f"{state}_at": job.times.get(state)
            for state in JobState
            if state is not JobState.QUEUED
        },
        "request_counts": {
            "total": data.num_lines,
            "completed": job.num_results - job.num_errors,
            "failed": job.num_errors,
        },
        "metadata": data.metadata or None,
    }


class BatchLines:
    """Answers the lines of batches. A line that is refused only for now is tried again."""

    def __init__(self, services: Services, endpoints: Mapping[str, Endpoint[Any, Any]]) -> None:
        self._services, self._endpoints = services, endpoints
        self._started_at = time.monotonic()

    async def __call__(self, line: BatchRequest) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        endpoint = self._endpoints[line.endpoint]
        token = current_request.set(RequestInfo(line.id, "POST", line.endpoint))
        try:
            while True:
                try:
                    return 200, await self._answer(endpoint, line)
                except ENDS:
                    raise
                except BaseException as error:  # a panic of a library is not an Exception
                    if (seconds := self._wait_seconds(error)) is None:
                        log_failure(error)
                        return endpoint.protocol.report(error)
                    await asyncio.sleep(seconds)
        finally:
            current_request.reset(token)

    async def _answer(self, endpoint: Endpoint[Any, Any], line: BatchRequest) -> Any:
        services = self._services
        if services.keys is not None and services.keys.entry(line.owner) is None:
            raise KeyRefused("the key of this batch was revoked", endpoint.protocol.key_place)
        if line.body.get("stream"):
            raise RequestError("stream", True, "batches are not streamed")
        with collect_request_stats() as stats:
            stats.key = line.owner
            async with AsyncExitStack() as resources:
                tracked = resources.enter_context(services.metrics.track(endpoint.protocol.name))
                fields = {name: value for name, value in line.body.items() if value is not None}
                fields = {"priority": _PRIORITY, **fields}
                response = await endpoint.answer_fields(fields, services, tracked, resources)
                return json.loads(bytes(response.body))

    def _wait_seconds(self, error: BaseException) -> float | None:
        """Return the time until the next try; None if there is none."""
        is_starting = time.monotonic() - self._started_at < _STARTING_SECONDS
        if isinstance(error, _TEMPORARY) or (isinstance(error, ModelNotFound) and is_starting):
            seconds = getattr(error, "retry_after_seconds", _WAIT_SECONDS)
            return min(max(seconds, _MIN_WAIT_SECONDS), _MAX_WAIT_SECONDS)
        return None

"""Serves OpenAI's `/v1/files` and `/v1/batches`: many requests as one file, answered when there is
room.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ConfigDict, Field

from serving.access.account import accounted, current_account
from serving.api.http.authentication import Gate
from serving.api.http.bodies import FieldsBody
from serving.api.http.endpoint import Endpoint, Question
from serving.api.http.error_responses import ENDS, asked, log_failure
from serving.api.http.error_responses import Asked as AskedOverHTTP
from serving.api.http.fields import READS_JSON
from serving.api.http.openapi import MULTIPART, OF_A_BODY, OF_A_MODEL, described_body
from serving.api.http.services import Services
from serving.api.http.uploads import File, uploaded
from serving.api.openai.answers import Batch, BatchList, Deleted, FileList, FileObject
from serving.api.openai.embeddings import EMBEDDINGS
from serving.api.openai.protocol import PROTOCOL
from serving.api.openai.routes import ENDPOINTS
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
from serving.jobs.table import FileRecord, State

_CHUNK_BYTES = 2**18
_MOST_LISTED = 100
_ORDERS = ("asc", "desc")
_PATHS: dict[str, Endpoint[Any, Any]] = {
    endpoint.protocol.prefix + endpoint.path: endpoint for endpoint in (*ENDPOINTS, EMBEDDINGS)
}
_OF_AN_OBJECT = (400, *OF_A_MODEL)
Record = TypeVar("Record", FileRecord, jobs.Batch)


class BatchFileBody(FieldsBody):
    """A file of requests."""

    model_config = ConfigDict(extra="forbid")

    file: File
    purpose: Literal["batch"]


class BatchBody(FieldsBody):
    """Asks for answers to the lines of a file. All of them are for one endpoint."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input_file_id: str
    endpoint: Literal["/v1/completions", "/v1/chat/completions", "/v1/embeddings"]
    completion_window: Literal["24h"]
    metadata: Annotated[dict[str, str], Field(max_length=16)] = Field(default_factory=dict)


BODIES = (BatchFileBody, BatchBody)


def batches_of(services: Services) -> Batches:
    return Batches(services.jobs, BatchLines(services, _PATHS))


async def _create(batches: Batches, _: Services, body: BatchBody) -> dict[str, Any]:
    return _batch(await batches.create(_owner(), body.endpoint, body.input_file_id, body.metadata))


def _creating(batches: Batches) -> Question[BatchBody]:
    return Question(
        protocol=PROTOCOL,
        path="/batches",
        name="create_batch",
        description="Have the requests of a file answered, after everybody who waits.",
        body=BatchBody,
        reader=READS_JSON,
        answer=partial(_create, batches),
        answer_type=Batch,
        example={
            "input_file_id": "file-abc",
            "endpoint": "/v1/chat/completions",
            "completion_window": WINDOW,
        },
    )


def router(services: Services, batches: Batches) -> APIRouter:
    routes = PROTOCOL.router("OpenAI")
    with_key = [Depends(Gate(services.keys).door(PROTOCOL))]
    _add_files(routes, services, batches, with_key)
    _creating(batches).add_to(routes, services)
    _add_batches(routes, batches, with_key)
    return routes


def _add_files(
    routes: APIRouter, services: Services, batches: Batches, with_key: Sequence[Any]
) -> None:
    @routes.post(
        "/files",
        responses=PROTOCOL.responses(FileObject, OF_A_BODY),
        openapi_extra=described_body(BatchFileBody, MULTIPART, example={"purpose": INPUT_PURPOSE}),
    )
    async def upload(request: Request) -> JSONResponse:
        """Keep a file of requests, one JSON object a line, for 30 days."""
        async with uploaded(request, services, PROTOCOL, BatchFileBody, MAX_FILE_MIB) as body:
            name = Path(body.file.filename).name
            return JSONResponse(_file(await batches.add_file(_owner(), name, body.file.file)))

    @routes.get(
        "/files", responses=PROTOCOL.responses(FileList, _OF_AN_OBJECT), dependencies=with_key
    )
    async def files(request: Request) -> JSONResponse:
        """List files, the newest first, or with `order=asc` last; `after` and `limit` page."""
        asked = _asked(request, "after", "limit", "order", "purpose")
        found = await batches.files(_owner())
        if purpose := asked.get("purpose"):
            found = [record for record in found if record.purpose == purpose]
        if (order := asked.get("order", "desc")) not in _ORDERS:
            raise RequestError("order", order, f"must be {' or '.join(_ORDERS)}")
        return JSONResponse(_page(asked, found if order == "desc" else found[::-1], _file))

    @routes.get(
        "/files/{file_id}",
        responses=PROTOCOL.responses(FileObject, OF_A_MODEL),
        dependencies=with_key,
    )
    async def file(file_id: str) -> JSONResponse:
        """Describe a file."""
        return JSONResponse(_file(await batches.file(_owner(), file_id)))

    @routes.get(
        "/files/{file_id}/content",
        responses=PROTOCOL.responses(None, OF_A_MODEL),
        dependencies=with_key,
    )
    async def content(file_id: str) -> StreamingResponse:
        """Return what is in a file."""
        path = await batches.content(_owner(), file_id)
        return StreamingResponse(_sent(path), media_type="application/jsonl")

    @routes.delete(
        "/files/{file_id}",
        responses=PROTOCOL.responses(Deleted, _OF_AN_OBJECT),
        dependencies=with_key,
    )
    async def delete(file_id: str) -> JSONResponse:
        """Forget a file."""
        await batches.delete_file(_owner(), file_id)
        return JSONResponse({"id": file_id, "object": "file", "deleted": True})


def _add_batches(routes: APIRouter, batches: Batches, with_key: Sequence[Any]) -> None:
    @routes.get(
        "/batches", responses=PROTOCOL.responses(BatchList, _OF_AN_OBJECT), dependencies=with_key
    )
    async def listed(request: Request) -> JSONResponse:
        """List batches, the newest first; `after` and `limit` page."""
        asked = _asked(request, "after", "limit")
        return JSONResponse(_page(asked, await batches.batches(_owner()), _batch))

    @routes.get(
        "/batches/{batch_id}",
        responses=PROTOCOL.responses(Batch, OF_A_MODEL),
        dependencies=with_key,
    )
    async def batch(batch_id: str) -> JSONResponse:
        """Return how far a batch is."""
        return JSONResponse(_batch(await batches.batch(_owner(), batch_id)))

    @routes.post(
        "/batches/{batch_id}/cancel",
        responses=PROTOCOL.responses(Batch, _OF_AN_OBJECT),
        dependencies=with_key,
    )
    async def cancel(batch_id: str) -> JSONResponse:
        """Have a batch end with what is done."""
        return JSONResponse(_batch(await batches.cancel(_owner(), batch_id)))


def _owner() -> str:
    return current_account().key


async def _sent(path: Path) -> AsyncGenerator[bytes, None]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _asked(request: Request, *known: str) -> dict[str, str]:
    """Return what is asked of a list. Raises RequestError for what it does not know."""
    asked = dict(request.query_params)
    for name in asked.keys() - known:
        raise RequestError(name, asked[name], "is not supported here")
    return asked


def _page(asked: Mapping[str, str], records: Sequence[Record], described: Any) -> dict[str, Any]:
    """Cut a page out of a list. Raises RequestError for a limit that is none."""
    limit = asked.get("limit", str(_MOST_LISTED))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:6]) <= 10_000):
        raise RequestError("limit", limit, "must be between 1 and 10000")
    ids = [record.id for record in records]
    after = asked.get("after")
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
        "status": "validating" if job.state is State.QUEUED else job.state,
        "output_file_id": data.output_file,
        "error_file_id": data.error_file,
        "created_at": int(job.created_at),
        "expires_at": data.expires_at,
        **{f"{state}_at": job.times.get(state) for state in State if state is not State.QUEUED},
        "request_counts": {
            "total": data.num_lines,
            "completed": job.num_results - job.num_errors,
            "failed": job.num_errors,
        },
        "metadata": data.metadata or None,
    }


_PRIORITY = 1_000  # of batches; requests that say nothing have 0, and lower comes first
_SOON = (Overloaded, RateExceeded, EngineStopped, OutOfMemory, StorageError)
_WAIT_SECONDS = 5.0
_MOST_SECONDS = 30.0
_STARTING_SECONDS = 120.0  # other worker groups may be loading their models yet


class BatchLines:
    """Answers lines by the endpoints that they name. What would be refused only now is asked again
    until it is not.
    """

    def __init__(self, services: Services, endpoints: Mapping[str, Endpoint[Any, Any]]) -> None:
        self._services, self._endpoints = services, endpoints
        self._started_at = time.monotonic()

    async def __call__(self, line: BatchRequest) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        endpoint = self._endpoints[line.endpoint]
        token = asked.set(AskedOverHTTP(line.id, "POST", line.endpoint))
        try:
            while True:
                try:
                    return 200, await self._answer(endpoint, line)
                except ENDS:
                    raise
                except BaseException as error:  # a library's panic is no Exception
                    if (seconds := self._wait_seconds(error)) is None:
                        log_failure(error)
                        return endpoint.protocol.report(error)
                    await asyncio.sleep(seconds)
        finally:
            asked.reset(token)

    async def _answer(self, endpoint: Endpoint[Any, Any], line: BatchRequest) -> Any:
        services = self._services
        if services.keys is not None and services.keys.entry(line.owner) is None:
            raise KeyRefused(endpoint.protocol.key_place)
        if line.body.get("stream"):
            raise RequestError("stream", True, "batches are not streamed")
        with accounted() as account:
            account.key = line.owner
            async with AsyncExitStack() as resources:
                tracked = resources.enter_context(services.metrics.track(endpoint.protocol.name))
                said = {name: each for name, each in line.body.items() if each is not None}
                fields = {"priority": _PRIORITY, **said}
                response = await endpoint.answered(fields, services, tracked, resources)
                return json.loads(bytes(response.body))

    def _wait_seconds(self, error: BaseException) -> float | None:
        """Return after how long to ask again; None of what is refused for good."""
        is_starting = time.monotonic() - self._started_at < _STARTING_SECONDS
        if isinstance(error, _SOON) or (isinstance(error, ModelNotFound) and is_starting):
            wanted = getattr(error, "retry_after_seconds", _WAIT_SECONDS)
            return min(max(wanted, 0.1), _MOST_SECONDS)
        return None

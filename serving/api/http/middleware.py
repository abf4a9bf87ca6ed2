"""ASGI middleware: request ids, the access log, uncaught errors, and HEAD.

The access log has one line of JSON for each finished request. It has no text of users, only the
beginning of the path and the numbers of tokens.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.http.protocol import (
    ENDS,
    Report,
    RequestInfo,
    current_request,
    error_response,
    log_failure,
    path_of,
)
from serving.errors import EngineStopped
from serving.observability.request_stats import RequestStats, collect_request_stats
from serving.observability.tracing import Tracing

_MAX_PATH_CHARACTERS = 256
_MAX_TRACE_CHARACTERS = 128
_CLOSED_BY_CLIENT = 499  # as in nginx: disconnected before the answer began


class AccessLog:
    """Collects the stats of each request, and writes a line of them unless `write` is None."""

    def __init__(self, write: Callable[[str], None] | None) -> None:
        self._write = write

    @contextmanager
    def line(self, request: RequestInfo, scope: Scope, answer: "_Answer") -> Iterator[None]:
        """Collect the stats of a request until the block ends, then write its line."""
        started = time.perf_counter()
        with collect_request_stats() as stats:
            try:
                yield
            finally:
                if self._write:
                    seconds = time.perf_counter() - started
                    self._write(_line(request, scope, answer.status, stats, seconds))


def _line(
    request: RequestInfo, scope: Scope, status: int | None, stats: RequestStats, seconds: float
) -> str:
    fields: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": request.request_id,
        "client": (scope.get("client") or ("",))[0],
        "key": stats.key,
        "method": request.method,
        "path": request.path[:_MAX_PATH_CHARACTERS],
        "protocol": stats.protocol,
        "model": stats.model,
        "status": status or _CLOSED_BY_CLIENT,
        "outcome": stats.outcome,
        "duration_ms": _milliseconds(seconds),
        "queue_ms": _milliseconds(stats.queue_seconds),
        "tokens_in": stats.num_input_tokens,
        "tokens_out": stats.num_generated_tokens,
    }
    if trace := Headers(scope=scope).get("traceparent"):
        fields["traceparent"] = trace[:_MAX_TRACE_CHARACTERS]
    return json.dumps(fields)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


class RequestsInProgress:
    """The requests without the beginning of an answer; at the end of a server they get one."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], _Answer] = {}
        self._has_ended = False

    def end(self) -> None:
        """Make what waits for anything raise EngineStopped: a client's body, a job in the queue."""
        self._has_ended = True
        for task, answer in self._tasks.items():
            if answer.status is None:
                task.cancel()

    @contextmanager
    def entered(self, answer: "_Answer") -> Iterator[None]:
        """Note a request until the block ends. Raises EngineStopped."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = answer
        try:
            yield
        except asyncio.CancelledError:
            if not self._has_ended or answer.status is not None:
                raise
            task.uncancel()
            raise EngineStopped("the server is stopping; try again") from None
        finally:
            del self._tasks[task]


_ID_HEADER = "x-request-id"
_IS_ID = re.compile("[!-~]{1,128}")


class Guard:
    """Answers errors that no handler has answered, also those that are no `Exception`, such as a
    panic in a Rust library.

    An answer that has begun is cut off.

    endpoints: applications for POST requests, by path. They are called at once; all other requests
        go through FastAPI.
    """

    def __init__(
        self,
        app: ASGIApp,
        report: Report,
        access: AccessLog,
        endpoints: Mapping[str, ASGIApp],
        in_progress: RequestsInProgress,
        tracing: Tracing | None = None,
    ) -> None:
        self._app, self._endpoints = app, endpoints
        self._report = report
        self._access = access
        self._in_progress = in_progress
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        request = RequestInfo(answer.request_id, scope["method"], path_of(scope))
        endpoint = self._endpoints.get(request.path) if request.method == "POST" else None
        app = endpoint or self._app
        with (
            _in_context(request),
            self._access.line(request, scope, answer),
            self._traced(scope, answer),
        ):
            try:
                with self._in_progress.entered(answer):
                    await app(scope, receive, answer.send)
            except ENDS:
                raise
            except BaseException as error:
                if answer.status is not None:
                    log_failure(error)
                    raise
                response = error_response(error, *self._report(scope, error))
                await response(scope, receive, answer.send)

    def _traced(self, scope: Scope, answer: "_Answer") -> AbstractContextManager[None]:
        if self._tracing is None:
            return nullcontext()
        headers = Headers(scope=scope)
        return self._tracing.request(scope["method"], path_of(scope), headers, answer)


class _Answer:
    """Sends one answer with its request id, unless the client gave the id.

    status: None until the answer has begun.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        given = Headers(scope=scope).get(_ID_HEADER)
        self.request_id = given if given and _IS_ID.fullmatch(given) else uuid4().hex
        self.status: int | None = None
        self._sends_id = given is None
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._sends_id:
                MutableHeaders(scope=message)[_ID_HEADER] = self.request_id
        await self._send(message)


@contextmanager
def _in_context(request: RequestInfo) -> Iterator[None]:
    token = current_request.set(request)
    try:
        yield
    finally:
        current_request.reset(token)


class Heads:
    """Answers HEAD like GET, without the body (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if "body" in message else message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send_without_body)
        else:
            await self._app(scope, receive, send)

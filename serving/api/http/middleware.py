"""ASGI middleware: request ids, the access log, uncaught errors, and HEAD.

The access log has one line of JSON for each finished request. It has no text of users, only the
beginning of the path and the numbers of tokens.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.http.protocol import (
    ENDS,
    ErrorReport,
    RequestInfo,
    current_request,
    error_response,
    log_failure,
    path_of,
)
from serving.errors import EngineStopped
from serving.observability.request_stats import RequestStats, collect_request_stats
from serving.observability.tracing import Tracing

_MAX_PATH_CHARACTERS = 256  # in the access log; a client may send a path of any length
_MAX_TRACE_CHARACTERS = 128  # a traceparent has 55 (W3C Trace Context), later versions more
_ID_HEADER = "x-request-id"
_READY_PATH = "/ready"
_HEALTH_CHECK = "attendant-health-check"  # HAProxy's own; of clients HAProxy removes it
_IS_ID = re.compile("[!-~]{1,128}")
_CLOSED_BY_CLIENT = 499  # as in nginx: disconnected before the answer began


def _access_line(
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


def _is_health_check(request: RequestInfo, scope: Scope) -> bool:
    """Return whether HAProxy asks whether this replica is ready."""
    return request.path == _READY_PATH and _HEALTH_CHECK in Headers(scope=scope)


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
    def track(self, answer: "_Answer") -> Iterator[None]:
        """Hold a request until the block ends. Raises EngineStopped."""
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


class ErrorMiddleware:
    """Gives each request an answer, whatever fails, an id, and a line in the access log.

    HAProxy's own health checks, one a second for each replica, have no line.

    It reports errors that no route has reported, also those that are no `Exception`, such as a
    panic in a Rust library. An answer that has begun is cut off.

    write_access: writes a line of the access log; None if it is off. tracing: None if no spans are
        exported.
    """

    def __init__(
        self,
        app: ASGIApp,
        report: ErrorReport,
        in_progress: RequestsInProgress,
        write_access: Callable[[str], None] | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._app, self._report, self._in_progress = app, report, in_progress
        self._write_access, self._tracing = write_access, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        request = RequestInfo(answer.request_id, scope["method"], path_of(scope))
        started = time.perf_counter()
        token = current_request.set(request)
        with collect_request_stats() as stats:
            try:
                if self._tracing is None:
                    await self._respond(scope, receive, answer)
                else:
                    names = request.method, request.path, Headers(scope=scope)
                    with self._tracing.request(*names, answer):
                        await self._respond(scope, receive, answer)
            finally:
                if self._write_access and not _is_health_check(request, scope):
                    seconds = time.perf_counter() - started
                    line = _access_line(request, scope, answer.status, stats, seconds)
                    self._write_access(line)
                current_request.reset(token)

    async def _respond(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            with self._in_progress.track(answer):
                await self._app(scope, receive, answer.send)
        except ENDS:
            raise
        except BaseException as error:
            if answer.status is not None:
                log_failure(error)
                raise
            response = error_response(error, *self._report(scope, error))
            await response(scope, receive, answer.send)


class _Answer:
    """Sends one answer with its request id, unless the client gave the id.

    status: None until the answer has begun.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        client_id = Headers(scope=scope).get(_ID_HEADER)
        is_valid = client_id is not None and _IS_ID.fullmatch(client_id)
        self.request_id = client_id if client_id and is_valid else uuid4().hex
        self.status: int | None = None
        self._sends_id = client_id is None
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._sends_id:
                MutableHeaders(scope=message)[_ID_HEADER] = self.request_id
        await self._send(message)


class HeadMiddleware:
    """Answers HEAD like GET, without the body (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if "body" in message else message)

        await self._app({**scope, "method": "GET"}, receive, send_without_body)

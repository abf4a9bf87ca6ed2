"""Stands around all routes: gives requests their ids, and answers for what no handler caught."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.http.access_log import AccessLog
from serving.api.http.error_responses import (
    ENDS,
    Asked,
    Report,
    asked,
    log_failure,
)
from serving.api.http.protocol import path_of
from serving.tracing.spans import Tracing

_ID_HEADER = "x-request-id"
_IS_ID = re.compile("[!-~]{1,128}")


class Guard:
    """Answers whatever was raised. The libraries beneath also raise what is no Exception: a panic
    of theirs is no reason to answer in plain text, or not at all. An answer that has begun is
    broken off.
    """

    def __init__(
        self, app: ASGIApp, report: Report, access: AccessLog, tracing: Tracing | None = None
    ) -> None:
        self._app = app
        self._report = report
        self._access = access
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        it = Asked(answer.request_id, scope["method"], path_of(scope))
        with _in_context(it), self._access.line(it, scope, answer), self._traced(scope, answer):
            try:
                await self._app(scope, receive, answer.send)
            except ENDS:
                raise
            except BaseException as error:
                log_failure(error)
                if answer.status is not None:
                    raise
                status, body = self._report(scope, error)
                response = JSONResponse(body, status)
                await response(scope, receive, answer.send)

    def _traced(self, scope: Scope, answer: "_Answer") -> AbstractContextManager[None]:
        if self._tracing is None:
            return nullcontext()
        asked_by = Headers(scope=scope)
        return self._tracing.request(scope["method"], path_of(scope), asked_by, answer)


class _Answer:
    """Sends the answer of one request with its id, unless the server beneath sends that.

    status: None until it has begun.
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
def _in_context(request: Asked) -> Iterator[None]:
    token = asked.set(request)
    try:
        yield
    finally:
        asked.reset(token)


class Heads:
    """Answers HEAD as GET, without the body (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if "body" in message else message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send_without_body)
        else:
            await self._app(scope, receive, send)

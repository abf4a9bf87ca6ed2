"""Around all routes: the request's id, and an answer for what no handler caught.

It knows ASGI alone; `errors` has the shapes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.http.errors import ENDS, Asked, ErrorBody, asked, log_failure, path_of, status_of

_ID_HEADER = "x-request-id"


class Guard:
    """The libraries beneath also raise what is no Exception: a panic of theirs is no reason to
    answer in plain text, or not at all. An answer that has begun is broken off.
    """

    def __init__(self, app: ASGIApp, body_of: Callable[[str], ErrorBody]) -> None:
        self._app = app
        self._body_of = body_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        with _in_context(Asked(answer.request_id, scope["method"], path_of(scope))):
            try:
                await self._app(scope, receive, answer.send)
            except ENDS:
                raise
            except BaseException as error:
                log_failure(error)
                if answer.has_begun:
                    raise
                status = status_of(error)
                response = JSONResponse(self._body_of(path_of(scope))(status, error), status)
                await response(scope, receive, answer.send)


class _Answer:
    """What is sent for one request: with its id, unless the server beneath sends that."""

    def __init__(self, scope: Scope, send: Send) -> None:
        given = Headers(scope=scope).get(_ID_HEADER)
        self.request_id = given or uuid4().hex
        self.has_begun = False
        self._tells_id = given is None
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            if self._tells_id:
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
    """HEAD is GET whose answer has no body (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if "body" in message else message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, send_without_body)
        else:
            await self._app(scope, receive, send)

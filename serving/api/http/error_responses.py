"""Turns errors into answers: the status of each in one place, the body in its protocol's shape."""

import asyncio
import logging
import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Scope

from serving.errors import (
    AttendantError,
    DeadlineExceeded,
    DocumentNotFound,
    DocumentNotReady,
    DocumentsFull,
    EngineStopped,
    GlossaryNotFound,
    KeyRefused,
    ModelNotFound,
    NoSuchObject,
    OutOfMemory,
    Overloaded,
    QuotaExceeded,
    RateExceeded,
    RequestError,
    StorageError,
    TooLarge,
    WrongMediaType,
)

logger = logging.getLogger(__name__)

# The first class that fits counts.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ModelNotFound, 404),
    (GlossaryNotFound, 404),
    (DocumentNotFound, 404),
    (NoSuchObject, 404),
    (TooLarge, 413),
    (WrongMediaType, 415),
    (RequestError, 400),
    (KeyRefused, 401),
    (RateExceeded, 429),
    (QuotaExceeded, 429),
    (Overloaded, 429),
    (DeadlineExceeded, 504),
    (EngineStopped, 503),
    (OutOfMemory, 503),
    (StorageError, 503),
    (DocumentNotReady, 503),
    (DocumentsFull, 503),
)
_RETRY_AFTER_503_SECONDS = 5.0
_DO_NOT_RETRY = {"X-Should-Retry": "false"}  # OpenAI's clients: it is days, not seconds
# Says with a 429 that a smaller request would get one too. HAProxy, which may be in front, then
# gives it by itself for a moment to whoever asks alike: see deployments/haproxy.frontend.
REFUSES_ALL = "Attendant-Refuses-All"
# Makes the status and the body that report an error, as the protocol of the request has them.
Report = Callable[[Scope, BaseException], tuple[int, dict[str, Any]]]

# What ends a task, a generator or the process on purpose: never an error to answer with.
ENDS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


@dataclass(frozen=True)
class Asked:
    """Names the request that is being served in the log; its query may hold text of a user."""

    request_id: str
    method: str
    path: str


asked: ContextVar[Asked] = ContextVar("asked")


def status_of(error: BaseException) -> int:
    """Return the status of an error where a protocol has none of its own."""
    if isinstance(error, HTTPException):
        return error.status_code
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def message_of(error: BaseException) -> str:
    """Say what the client learns of an error. Our own bugs go to the log, not to the client."""
    if isinstance(error, HTTPException):
        return str(error.detail)
    if isinstance(error, StorageError):
        return "the server cannot use its state now"
    if isinstance(error, AttendantError):
        return str(error).encode(errors="backslashreplace").decode()
    return "internal error"


def log_failure(error: BaseException) -> None:
    """Log what is our own fault, with its traceback and the id that the client got."""
    if status_of(error) == 500 or isinstance(error, StorageError):
        it = asked.get()
        message = "request %s failed: %s %r: %r"
        logger.error(message, it.request_id, it.method, it.path, error, exc_info=error)


def install_error_handlers(app: FastAPI, report: Report) -> None:
    """Answer errors that have a status; what is left is the guard's."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        log_failure(error)
        status, body = report(request.scope, error)
        return JSONResponse(body, status, headers=_headers_of(error, status))

    for cls in (AttendantError, HTTPException):
        app.add_exception_handler(cls, answer)


def _headers_of(error: Exception, status: int) -> dict[str, str]:
    if isinstance(error, HTTPException):
        return {name: _with_head(value) for name, value in (error.headers or {}).items()}
    if isinstance(error, KeyRefused) and status == 401:
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, RateExceeded | DocumentNotReady | DocumentsFull):
        return _retry_after(error.retry_after_seconds)
    if isinstance(error, QuotaExceeded):
        later = error.retry_after_seconds
        return _DO_NOT_RETRY | ({} if later is None else _retry_after(later))
    if isinstance(error, Overloaded):
        for_all = {REFUSES_ALL: "1"} if error.is_for_all else {}
        return _retry_after(error.retry_after_seconds) | for_all
    if isinstance(error, EngineStopped | OutOfMemory | StorageError):
        return _retry_after(_RETRY_AFTER_503_SECONDS)
    return {}


def _with_head(value: str) -> str:
    """Add HEAD to `Allow`, the one header that routing sets: what can be got has a head."""
    return "GET, HEAD" if value == "GET" else value


def _retry_after(seconds: float) -> dict[str, str]:
    """Say it in whole seconds, and as OpenAI's clients also read it, in milliseconds."""
    milliseconds = max(100, math.ceil(seconds * 1000))
    return {"Retry-After": str(math.ceil(milliseconds / 1000)), "Retry-After-Ms": str(milliseconds)}

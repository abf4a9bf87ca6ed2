"""Errors to HTTP: the status of each in one place, the body in the protocol's own shape."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from serving.errors import (
    AttendantError,
    DeadlineExceeded,
    EngineStopped,
    ModelNotFound,
    Overloaded,
    RequestError,
    TooLarge,
)

logger = logging.getLogger(__name__)

# The first class that fits counts.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ModelNotFound, 404),
    (TooLarge, 413),
    (RequestError, 400),
    (Overloaded, 429),
    (DeadlineExceeded, 504),
    (EngineStopped, 503),
)
_RETRY_AFTER_STOPPED_SECONDS = 5.0
ErrorBody = Callable[[int, Exception], dict[str, Any]]


def status_of(error: Exception) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def message_of(error: Exception) -> str:
    """What the client is told. Our own bugs go to the log, not to the client."""
    if isinstance(error, HTTPException):
        return str(error.detail)
    if isinstance(error, AttendantError):
        return str(error).encode(errors="backslashreplace").decode()
    return "internal error"


def renamed(error: Exception, names: Mapping[str, str]) -> Exception:
    """The error with its field called as clients of a protocol call it."""
    if not isinstance(error, RequestError) or error.field not in names:
        return error
    return type(error)(names[error.field], error.value, error.message)


def log_failure(error: Exception) -> None:
    if status_of(error) == 500:
        logger.error("request failed: %s", error, exc_info=error)


def install_error_handlers(app: FastAPI, body_of: Callable[[str], ErrorBody]) -> None:
    """`body_of(path)` is the shape that the protocol at `path` gives its errors."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        log_failure(error)
        status = status_of(error)
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        body = body_of(path)(status, error)
        return JSONResponse(body, status, headers=_headers_of(error))

    for cls in (AttendantError, HTTPException, Exception):
        app.add_exception_handler(cls, answer)


def _headers_of(error: Exception) -> dict[str, str]:
    if isinstance(error, HTTPException):
        return dict(error.headers or {})
    if isinstance(error, Overloaded):
        return {"Retry-After": _whole_seconds(error.retry_after_seconds)}
    if isinstance(error, EngineStopped):
        return {"Retry-After": _whole_seconds(_RETRY_AFTER_STOPPED_SECONDS)}
    return {}


def _whole_seconds(seconds: float) -> str:
    return str(max(1, math.ceil(seconds)))

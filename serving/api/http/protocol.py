"""What defines a protocol: its paths, its names for fields, and how it reports errors.

The status of each error is in one place.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NotRequired

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Scope
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.content_encoding import ENCODINGS
from serving.api.http.openapi import (
    COMMON_STATUSES,
    Responses,
    SecuritySchemes,
    describe_keys,
    responses,
)
from serving.errors import (
    CONTENT_ENCODING,
    AttendantError,
    DeadlineExceeded,
    DocumentNotFound,
    DocumentNotReady,
    DocumentsFull,
    DocumentTaken,
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
    TranslationMemoryNotFound,
    WrongMediaType,
)

logger = logging.getLogger(__name__)
ErrorShape = Callable[[int, BaseException], dict[str, Any]]
# Returns the status and the body that report an error, as the protocol of the request has them.
ErrorReport = Callable[[Scope, BaseException], tuple[int, dict[str, Any]]]

# The first class that matches counts.
_STATUS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], int], ...] = (
    (
        (
            ModelNotFound,
            GlossaryNotFound,
            TranslationMemoryNotFound,
            DocumentNotFound,
            NoSuchObject,
        ),
        404,
    ),
    (TooLarge, 413),
    (WrongMediaType, 415),
    (RequestError, 400),
    (KeyRefused, 401),
    ((RateExceeded, QuotaExceeded, Overloaded), 429),
    (DeadlineExceeded, 504),
    ((EngineStopped, OutOfMemory, StorageError), 503),
    ((DocumentNotReady, DocumentTaken, DocumentsFull), 503),
)
_RETRY_AFTER_503_SECONDS = 5.0  # until memory is free again, or another replica answers
# With a 429: a smaller request would be refused too. HAProxy in front then refuses similar
# requests by itself for a moment: see deployments/haproxy.frontend.
REFUSES_ALL = "Attendant-Refuses-All"
# What ends a task, a generator or the process on purpose: never an error to answer with.
ENDS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


@dataclass(frozen=True)
class RequestInfo:
    """What logs name a request by; without the query, which may hold text of a user."""

    request_id: str
    method: str
    path: str


current_request: ContextVar[RequestInfo] = ContextVar("current_request")


@dataclass(frozen=True)
class Protocol:
    """What is particular to one protocol.

    name: label of its requests in the metrics.
    prefix: the beginning of its paths, without a slash at its end; empty at the root.
    error_shape: makes the body of an error out of the status and the error.
    error_type: type of these bodies, for the OpenAPI document.
    field_names: from the fields of pipelines and engine to those of clients. Only here does a field
        of an error change its name: bodies use the names of clients.
    key_scheme: stands before a key in the `Authorization` header.
    key_field: the field that may hold the key instead, if there is one.
    needs_operators_key: whether the keys are those of operators.
    statuses: of errors for which its clients expect another status than `status_of`.
    """

    name: str
    prefix: str
    error_shape: ErrorShape
    error_type: Any
    field_names: Mapping[str, str] = field(default_factory=dict)
    key_scheme: str = "Bearer"
    key_field: str | None = None
    needs_operators_key: bool = False
    statuses: Mapping[type[BaseException], int] = field(default_factory=dict)

    @property
    def key_place(self) -> str:
        """Return which key clients need, and how they send it."""
        key = "an operator's key" if self.needs_operators_key else "a key"
        field_too = f", or as the field {self.key_field}" if self.key_field else ""
        return f"{key}, sent as Authorization: {self.key_scheme} KEY{field_too}"

    @property
    def security_schemes(self) -> SecuritySchemes:
        """Return how clients send their key, for OpenAPI."""
        return describe_keys(self.key_scheme, self.key_field, self.needs_operators_key)

    def report(self, error: BaseException) -> tuple[int, dict[str, Any]]:
        """Return the status and the body that report an error, in the client's words."""
        status = self.status_of(error)
        if isinstance(error, RequestError) and error.field in self.field_names:
            error = error.with_field(self.field_names[error.field])
        return status, self.error_shape(status, error)

    def status_of(self, error: BaseException) -> int:
        """Return the status that reports an error."""
        statuses = (status for cls, status in self.statuses.items() if isinstance(error, cls))
        return next(statuses, status_of(error))

    def owns(self, path: str) -> bool:
        """Return whether `path` is below the prefix."""
        return not self.prefix or path.startswith(self.prefix + "/")

    def responses(self, answer: Any, statuses: Sequence[int]) -> Responses:
        """Describe an answer of type `answer`, and errors with `statuses`, for OpenAPI."""
        return responses(answer, self.error_type, statuses)

    def refusal(self, status: int) -> Responses:
        """Describe a route that refuses all requests, for OpenAPI."""
        described = responses(None, self.error_type, (status, *COMMON_STATUSES))
        del described[200]
        return described


def path_of(scope: Scope) -> str:
    """Return the path without the prefix that a proxy has added."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class PlainError(TypedDict):
    """An error. field: the wrong field of the request. reason: what is wrong with it, without its
    name and its value.
    """

    error: str
    field: NotRequired[str]
    reason: NotRequired[str]


def plain_error(status: int, error: BaseException) -> dict[str, Any]:
    if isinstance(error, RequestError):
        return {"error": message_of(error), "field": error.field, "reason": reason_of(error)}
    return {"error": message_of(error)}


def status_of(error: BaseException) -> int:
    """Return the status of an error where a protocol has none of its own."""
    if isinstance(error, HTTPException):
        return error.status_code
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def message_of(error: BaseException) -> str:
    """Return the message that the client gets. Our own bugs go to the log, not to the client."""
    if isinstance(error, HTTPException):
        return str(error.detail)
    if isinstance(error, StorageError):
        return "the server cannot use its state now"
    if isinstance(error, AttendantError):
        return _without_surrogates(str(error))
    return "internal error"


def reason_of(error: RequestError) -> str:
    """Return what is wrong with the field of an error, without its name and its value."""
    return _without_surrogates(error.message)


def _without_surrogates(text: str) -> str:
    """Return a text that can be sent as UTF-8: it may quote halves of surrogate pairs."""
    return text.encode(errors="backslashreplace").decode()


def log_failure(error: BaseException) -> None:
    """Log an error of the server with its traceback and the id that the client got."""
    if status_of(error) == 500 or isinstance(error, StorageError):
        request = current_request.get()
        names = (request.request_id, request.method, request.path)
        logger.error("request %s failed: %s %r: %r", *names, error, exc_info=error)


def error_response(error: BaseException, status: int, body: dict[str, Any]) -> JSONResponse:
    """Return the answer that reports an error; an error of the server goes to the log."""
    log_failure(error)
    return JSONResponse(body, status, headers=_headers_of(error, status))


def _headers_of(error: BaseException, status: int) -> dict[str, str]:
    if isinstance(error, HTTPException):
        # Routing sets only `Allow`; what answers GET answers HEAD too.
        allowed = {"GET": "GET, HEAD"}
        return {name: allowed.get(value, value) for name, value in (error.headers or {}).items()}
    if isinstance(error, KeyRefused) and status == 401:
        return {"WWW-Authenticate": "Bearer"}
    headers: dict[str, str] = {}
    if isinstance(error, WrongMediaType) and error.field == CONTENT_ENCODING:
        headers["Accept-Encoding"] = ", ".join(ENCODINGS)  # RFC 9110, 15.5.16
    if isinstance(error, QuotaExceeded):  # OpenAI's clients: it is days, not seconds
        headers["X-Should-Retry"] = "false"
    if isinstance(error, Overloaded) and error.is_for_all:
        headers[REFUSES_ALL] = "1"
    default = None
    if isinstance(error, EngineStopped | OutOfMemory | StorageError):
        default = _RETRY_AFTER_503_SECONDS
    seconds: float | None = getattr(error, "retry_after_seconds", default)
    return headers if seconds is None else headers | _retry_after(seconds)


def _retry_after(seconds: float) -> dict[str, str]:
    """Return headers with whole seconds, and with milliseconds, which OpenAI's clients read too."""
    milliseconds = max(100, math.ceil(seconds * 1000))
    return {"Retry-After": str(math.ceil(milliseconds / 1000)), "Retry-After-Ms": str(milliseconds)}

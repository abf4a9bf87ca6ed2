"""Writes the access log: one line of JSON for each request, when it has ended.

No line holds text of a user: of a path its beginning, of a body nothing but how many tokens.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

from starlette.datastructures import Headers
from starlette.types import Scope

from serving.access.account import Account, accounted
from serving.api.http.error_responses import Asked

_MAX_PATH_CHARACTERS = 256
_MAX_TRACE_CHARACTERS = 128
_CLOSED_BY_CLIENT = 499  # nginx's own: it went away before its answer began


class Answer(Protocol):
    status: int | None


class AccessLog:
    """Follows requests; without a place to write to it only keeps their accounts."""

    def __init__(self, write: Callable[[str], None] | None) -> None:
        self._write = write

    @contextmanager
    def line(self, asked: Asked, scope: Scope, answer: Answer) -> Iterator[None]:
        """Keep the account of a request, and write its line at the end."""
        started = time.perf_counter()
        with accounted() as account:
            try:
                yield
            finally:
                if self._write:
                    seconds = time.perf_counter() - started
                    self._write(_line(asked, scope, answer.status, account, seconds))


def _line(asked: Asked, scope: Scope, status: int | None, account: Account, seconds: float) -> str:
    fields: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": asked.request_id,
        "client": (scope.get("client") or ("",))[0],
        "key": account.key,
        "method": asked.method,
        "path": asked.path[:_MAX_PATH_CHARACTERS],
        "protocol": account.protocol,
        "model": account.model,
        "status": status or _CLOSED_BY_CLIENT,
        "outcome": account.outcome,
        "duration_ms": _milliseconds(seconds),
        "queue_ms": _milliseconds(account.queue_seconds),
        "tokens_in": account.num_given_tokens,
        "tokens_out": account.num_generated_tokens,
    }
    if trace := Headers(scope=scope).get("traceparent"):
        fields["traceparent"] = trace[:_MAX_TRACE_CHARACTERS]
    return json.dumps(fields)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)

"""Keeps the account of one request while it is served: what the access log says of it.

Whoever learns something of the request notes it here: the endpoint its model and key, the engine
its tokens. Nothing here is text of a user.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Describes what the engine did for one part of a request, as a sentence.

    started_at: a time of `time.perf_counter`. reads_source: its prefill encoded a source.
    """

    model: str
    started_at: float
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    num_steps: int
    num_given_tokens: int
    num_generated_tokens: int
    reads_source: bool


@dataclass(slots=True)
class Account:
    """Holds what is known so far.

    protocol, outcome: empty of what no protocol counts, as `/health`.
    key: the name of the key that was shown, never the key.
    num_given_tokens: of sources and prompts.
    queue_seconds: the longest that a part of the request waited for its row; None if none got one
        in this process.
    parts: None where nobody asks, that is, while requests are not traced.
    traceparent: of the request's own span (W3C Trace Context); empty likewise.
    """

    protocol: str = ""
    model: str = ""
    outcome: str = ""
    key: str = ""
    num_given_tokens: int = 0
    num_generated_tokens: int = 0
    queue_seconds: float | None = None
    parts: list[Part] | None = None
    traceparent: str = ""

    def add(self, num_given: int, num_generated: int, queue_seconds: float | None = None) -> None:
        """Note that one part of the request, as a sentence, is done."""
        self.num_given_tokens += num_given
        self.num_generated_tokens += num_generated
        if queue_seconds is not None:
            self.queue_seconds = max(queue_seconds, self.queue_seconds or 0.0)

    @property
    def num_tokens(self) -> int:
        return self.num_given_tokens + self.num_generated_tokens


_current: ContextVar[Account] = ContextVar("account")


def current_account() -> Account:
    """Return the account of the request that is being served; outside of one, one that is lost."""
    return _current.get(None) or Account()


@contextmanager
def accounted() -> Iterator[Account]:
    """Open the account of a request."""
    account = Account()
    token = _current.set(account)
    try:
        yield account
    finally:
        _current.reset(token)


def open_account() -> Account:
    """Open an account for the rest of the task: generators end in other contexts than they began
    in, where nothing can be set back.
    """
    account = Account()
    _current.set(account)
    return account

"""The numbers of one request, for the access log, metrics, traces and limits; never its text.

The endpoint sets the model and the key of the current request, engines add their tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """What the engine did for one part of a request, such as a sentence.

    started_at: a time of `time.perf_counter`. reads_source: whether its prefill encoded a source.
    """

    model: str
    started_at: float
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    num_steps: int
    num_input_tokens: int
    num_generated_tokens: int
    reads_source: bool


@dataclass(slots=True)
class RequestStats:
    """The numbers of one request so far.

    protocol, outcome: empty for requests that no protocol counts, such as `/health`.
    key: the name of the API key, never the key.
    num_input_tokens: of sources and prompts.
    queue_seconds: the longest time that a part waited for its row; None if no part got a row in
        this process.
    generations: None if requests are not traced.
    traceparent: of the request's span (W3C Trace Context); empty if requests are not traced.
    """

    protocol: str = ""
    model: str = ""
    outcome: str = ""
    key: str = ""
    num_input_tokens: int = 0
    num_generated_tokens: int = 0
    queue_seconds: float | None = None
    generations: list[GenerationStats] | None = None
    traceparent: str = ""

    def add(self, num_input: int, num_generated: int, queue_seconds: float | None = None) -> None:
        """Add the numbers of a part of the request that has ended."""
        self.num_input_tokens += num_input
        self.num_generated_tokens += num_generated
        if queue_seconds is not None:
            self.queue_seconds = max(queue_seconds, self.queue_seconds or 0.0)

    @property
    def num_tokens(self) -> int:
        return self.num_input_tokens + self.num_generated_tokens


_current: ContextVar[RequestStats] = ContextVar("request_stats")


def current_request_stats() -> RequestStats:
    """Return the stats of the current request; new ones if there is no request."""
    return _current.get(None) or RequestStats()


def current_key() -> str:
    """Return the name of the API key of the current request; empty without a key."""
    return current_request_stats().key


@contextmanager
def collect_request_stats() -> Iterator[RequestStats]:
    """Begin new stats, which are those of the current request until the block ends."""
    stats = RequestStats()
    token = _current.set(stats)
    try:
        yield stats
    finally:
        _current.reset(token)


def start_request_stats() -> RequestStats:
    """Begin new stats, which are those of the current request for the rest of the task.

    It is for generators: they may end in another context, where a context variable cannot be reset.
    """
    stats = RequestStats()
    _current.set(stats)
    return stats

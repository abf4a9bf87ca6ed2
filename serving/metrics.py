"""Prometheus metrics of one replica: its registry, and requests as clients see them.

No text, address or key of a client is ever a label.
"""

import asyncio
import time
from enum import StrEnum
from types import TracebackType
from typing import Self

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from serving.errors import DeadlineExceeded, EngineStopped, OutOfMemory, Overloaded, RequestError

REQUEST_BUCKETS = (
    *(0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0),
)


class Outcome(StrEnum):
    SUCCESS = "success"
    REFUSED = "refused"  # the client's mistake
    OVERLOADED = "overloaded"
    EXPIRED = "expired"  # the deadline that the client set has passed
    CANCELLED = "cancelled"  # the client went away
    FAILED = "failed"


def outcome_of(error: BaseException | None) -> Outcome:
    match error:
        case None:
            return Outcome.SUCCESS
        case RequestError():
            return Outcome.REFUSED
        case Overloaded() | EngineStopped() | OutOfMemory():
            return Outcome.OVERLOADED
        case DeadlineExceeded():
            return Outcome.EXPIRED
        case asyncio.CancelledError() | GeneratorExit():
            return Outcome.CANCELLED
        case _:
            return Outcome.FAILED


class Metrics:
    """Holds the registry of one replica."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, replica: str) -> None:
        prometheus_client.disable_created_metrics()
        self.registry = CollectorRegistry()
        self.replica = replica
        self._requests = Counter(
            "attendant_requests",
            "Requests by how they ended.",
            ("model", "replica", "protocol", "outcome"),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "attendant_request_seconds",
            "Time from a request to the last byte of its answer.",
            ("model", "replica", "protocol"),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def track(self, protocol: str) -> "Tracked":
        return Tracked(self, protocol)

    def ended(self, model: str, protocol: str, outcome: Outcome, seconds: float) -> None:
        self._requests.labels(model, self.replica, protocol, outcome).inc()
        if outcome is Outcome.SUCCESS:
            self._request_seconds.labels(model, self.replica, protocol).observe(seconds)


class Tracked:
    """Follows a request from its arrival to the end of its answer: `with metrics.track(protocol)`.

    model: empty until it is known that such a model exists; names that clients make up are no
    labels. outcome: taken from the exception that ends the block, unless it was set inside.
    """

    def __init__(self, metrics: Metrics, protocol: str) -> None:
        self._metrics = metrics
        self._protocol = protocol
        self._started = time.perf_counter()
        self.model = ""
        self.outcome: Outcome | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        seconds = time.perf_counter() - self._started
        outcome = self.outcome or outcome_of(error)
        self._metrics.ended(self.model, self._protocol, outcome, seconds)

"""Prometheus metrics of one replica: its registry, and requests as clients see them.

No text, address or key of a client is ever a label.
"""

import asyncio
import re
import time
from collections import defaultdict
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Self

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from serving.errors import (
    DeadlineExceeded,
    EngineStopped,
    KeyRefused,
    OutOfMemory,
    Overloaded,
    QuotaExceeded,
    RateExceeded,
    RequestError,
)
from serving.observability.request_stats import current_request_stats

# Seconds. A bound is at most twice the one before, so that quantiles are near, of translations
# of milliseconds and of chats of minutes alike.
REQUEST_BUCKETS = (
    *(0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0),
    300.0,
)


_CHARTED = re.compile(
    r"^(attendant_(?:requests_total|requests_running|request_seconds_bucket)"
    r"|vllm:(?:num_requests_waiting|generation_tokens_total|time_to_first_token_seconds_bucket))"
    r"{(.*)} (\S+)$",
    re.MULTILINE,
)
_BUCKET, _OUTCOME = re.compile('le="[^"]*"'), re.compile('outcome="[^"]*"')


class Reading(NamedTuple):
    """Metrics at one time. seconds: since the epoch. text: in Prometheus' text format."""

    seconds: float
    text: str


def chart_samples(text: str) -> str:
    """Return the samples that the page draws the load from, summed over models, replicas and
    protocols. text: metrics of one replica, or of several, one after the other.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    for name, labels, value in _CHARTED.findall(text):
        label = _BUCKET.search(labels) or _OUTCOME.search(labels)
        sums[f"{name}{{{label[0] if label else ''}}}"] += float(value)
    return "".join(f"{sample} {value!r}\n" for sample, value in sums.items())


class Outcome(StrEnum):
    SUCCESS = "success"
    REFUSED = "refused"  # the client's mistake
    LIMITED = "limited"  # more than the client's key may ask for
    OVERLOADED = "overloaded"
    EXPIRED = "expired"  # the deadline that the client set has passed
    CANCELLED = "cancelled"  # the client went away
    FAILED = "failed"


def outcome_of(error: BaseException | None) -> Outcome:
    match error:
        case None:
            return Outcome.SUCCESS
        case RequestError() | KeyRefused():
            return Outcome.REFUSED
        case RateExceeded() | QuotaExceeded():
            return Outcome.LIMITED
        case Overloaded() | EngineStopped() | OutOfMemory():
            return Outcome.OVERLOADED
        case DeadlineExceeded():
            return Outcome.EXPIRED
        case asyncio.CancelledError() | GeneratorExit():
            return Outcome.CANCELLED
        case _:
            return Outcome.FAILED


# What vLLM calls the end of requests that their engine has not finished.
UNFINISHED = {Outcome.CANCELLED: "abort", Outcome.EXPIRED: "abort", Outcome.FAILED: "error"}


class Metrics:
    """The registry of one replica.

    finished: requests by the reason of their end, under vLLM's name. Engines count those that they
    have finished; the others are counted here, each request of a client once.

    Of each protocol and model, what was started has ended or is running. What is not known to be
    for a model yet is being read, and counts nowhere else.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, replica: str) -> None:
        prometheus_client.disable_created_metrics()
        self.registry = CollectorRegistry()
        self.replica = replica
        self.num_open = 0  # requests that have begun and not ended
        self._labelled: dict[tuple[Any, ...], Any] = {}
        self._requests = Counter(
            "attendant_requests",
            "Requests by how they ended.",
            ("model", "replica", "protocol", "outcome"),
            registry=self.registry,
        )
        self._started = Counter(
            "attendant_requests_started",
            "Requests whose model was found, and those that ended before.",
            ("model", "replica", "protocol"),
            registry=self.registry,
        )
        self._running = Gauge(
            "attendant_requests_running",
            "Requests that were started and have not ended.",
            ("model", "replica", "protocol"),
            registry=self.registry,
        )
        self._reading = Gauge(
            "attendant_requests_reading",
            "Requests that are being read.",
            ("replica", "protocol"),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "attendant_request_seconds",
            "Time from a request to the last byte of its answer.",
            ("model", "replica", "protocol", "outcome"),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._audio_seconds = Counter(
            "attendant_audio_seconds",
            "Seconds of sound that were transcribed.",
            ("model", "replica"),
            registry=self.registry,
        )

        self.finished = Counter(
            "vllm:request_success",
            "Finished requests by reason.",
            ("model_name", "engine", "finished_reason"),
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def track(self, protocol: str) -> "Tracked":
        return Tracked(self, protocol)

    def reading(self, protocol: str) -> Gauge:
        return self._reading.labels(self.replica, protocol)

    def count_start(self, model: str, protocol: str) -> None:
        self._labelled_metric(self._started, model, protocol).inc()
        self._labelled_metric(self._running, model, protocol).inc()

    def count_end(self, model: str, protocol: str, outcome: Outcome, seconds: float) -> None:
        self._labelled_metric(self._running, model, protocol).dec()
        self._labelled_metric(self._requests, model, protocol, outcome).inc()
        self._labelled_metric(self._request_seconds, model, protocol, outcome).observe(seconds)
        if model and outcome in UNFINISHED:
            self._labelled_metric(self.finished, model, UNFINISHED[outcome]).inc()

    def count_audio(self, model: str, seconds: float) -> None:
        self._labelled_metric(self._audio_seconds, model).inc(seconds)

    def _labelled_metric(self, metric: Any, model: str, *labels: str) -> Any:
        """Return the metric with these labels. The library takes a lock and makes texts of labels,
        for which a request has no time to spare.
        """
        key = metric, model, *labels
        if key not in self._labelled:
            self._labelled[key] = metric.labels(model, self.replica, *labels)
        return self._labelled[key]


class Tracked:
    """Follows a request from its arrival to the end of its answer: `with metrics.track(protocol)`.

    outcome: taken from the exception that ends the block, unless it was set inside.
    """

    def __init__(self, metrics: Metrics, protocol: str) -> None:
        self._metrics = metrics
        self._protocol = protocol
        self._arrived = time.perf_counter()
        self._model: str | None = None
        self.outcome: Outcome | None = None

    def __enter__(self) -> Self:
        current_request_stats().protocol = self._protocol
        self._metrics.num_open += 1
        self._metrics.reading(self._protocol).inc()
        return self

    def started(self, model: str) -> None:
        """Set the model of the request; empty if it has none. Only models that exist become
        labels.
        """
        self._model = current_request_stats().model = model
        self._metrics.reading(self._protocol).dec()
        self._metrics.count_start(model, self._protocol)

    def transcribed(self, seconds: float) -> None:
        """Count sound that was transcribed."""
        self._metrics.count_audio(self._model or "", seconds)

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._metrics.num_open -= 1
        if self._model is None:
            self.started("")
        outcome = self.outcome or outcome_of(error)
        current_request_stats().outcome = outcome
        seconds = time.perf_counter() - self._arrived
        self._metrics.count_end(self._model or "", self._protocol, outcome, seconds)

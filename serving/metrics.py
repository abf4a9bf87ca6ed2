"""Prometheus metrics of one replica: requests as clients see them, engines as they step.

Ours are named `attendant_*`; beside them stand vLLM's names, so that dashboards made for it work.
No text, address or key of a client is ever a label.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from serving.engine.measures import EngineStats, StepReport
from serving.errors import EngineStopped, Overloaded, RequestError
from serving.pipelines.engine_port import EnginePort
from serving.request import Event, FinishedEvent, GenerationRequest, TokenEvent

_REQUEST_BUCKETS = (
    *(0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0),
)
_STEP_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05),
    *(0.075, 0.1, 0.2, 0.5, 1.0),
)
_COUNT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class Outcome(StrEnum):
    SUCCESS = "success"
    REFUSED = "refused"  # the client's mistake
    OVERLOADED = "overloaded"
    CANCELLED = "cancelled"  # the client went away
    FAILED = "failed"


def outcome_of(error: BaseException | None) -> Outcome:
    match error:
        case None:
            return Outcome.SUCCESS
        case RequestError():
            return Outcome.REFUSED
        case Overloaded() | EngineStopped():
            return Outcome.OVERLOADED
        case asyncio.CancelledError() | GeneratorExit():
            return Outcome.CANCELLED
        case _:
            return Outcome.FAILED


class Metrics:
    """The registry of one replica."""

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
            buckets=_REQUEST_BUCKETS,
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
    """A request from its arrival to the end of its answer: `with metrics.track(protocol)`.

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


class EngineMetrics:
    """The metrics of every engine of a replica; `of(model)` is those of one."""

    def __init__(self, metrics: Metrics) -> None:
        registry, ours, vllm = metrics.registry, ("model", "replica"), ("model_name", "engine")

        def gauge(name: str, text: str, labels: tuple[str, ...] = ours) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def counter(name: str, text: str, labels: tuple[str, ...]) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(
            name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
        ) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        def counts(name: str, text: str, labels: tuple[str, ...]) -> Histogram:
            return histogram(name, text, labels, _COUNT_BUCKETS)

        def seconds(name: str, text: str, labels: tuple[str, ...]) -> Histogram:
            return histogram(name, text, labels, _REQUEST_BUCKETS)

        self._replica = metrics.replica
        self.tokens = counter("attendant_tokens", "Tokens by kind.", (*ours, "kind"))
        self.rows = gauge("attendant_rows", "Rows in use.")
        self.slots = gauge("attendant_slots", "Rows there are.")
        self.waiting = gauge("attendant_waiting", "Requests without a row yet.")
        self.kv_bytes = gauge("attendant_kv_bytes", "What the states of the rows in use fill.")
        self.padding = gauge("attendant_padding_ratio", "Padding in the last batch encoded.")
        self.batch_rows = counts("attendant_batch_rows", "Rows of each decoding step.", ours)
        self.step = histogram(
            "attendant_step_seconds", "Time of a step by phase.", (*ours, "phase"), _STEP_BUCKETS
        )
        self.queue = seconds("attendant_queue_seconds", "Time without a row.", ours)
        self.first_token = seconds(
            "attendant_time_to_first_token_seconds", "Time to a stream's first token.", ours
        )
        self.inter_token = histogram(
            "attendant_inter_token_seconds", "Time between a stream's tokens.", ours, _STEP_BUCKETS
        )
        self.vllm_running = gauge("vllm:num_requests_running", "Rows in use.", vllm)
        self.vllm_waiting = gauge("vllm:num_requests_waiting", "Requests without a row.", vllm)
        self.vllm_cache = gauge(
            "vllm:kv_cache_usage_perc", "Rows in use, of those there are.", vllm
        )
        self.vllm_prompt = counter("vllm:prompt_tokens", "Source and prompt tokens.", vllm)
        self.vllm_generated = counter("vllm:generation_tokens", "Generated tokens.", vllm)
        self.vllm_success = counter(
            "vllm:request_success", "Finished requests by reason.", (*vllm, "finished_reason")
        )
        self.vllm_first_token = seconds(
            "vllm:time_to_first_token_seconds", "Time to a stream's first token.", vllm
        )
        self.vllm_inter_token = histogram(
            "vllm:inter_token_latency_seconds", "Time between tokens.", vllm, _STEP_BUCKETS
        )
        self.vllm_request = seconds(
            "vllm:e2e_request_latency_seconds", "Time of a request to the engine.", vllm
        )
        self.vllm_queue = seconds("vllm:request_queue_time_seconds", "Time without a row.", vllm)
        self.vllm_request_prompt = counts(
            "vllm:request_prompt_tokens", "Source and prompt tokens of a request.", vllm
        )
        self.vllm_request_generated = counts(
            "vllm:request_generation_tokens", "Generated tokens of a request.", vllm
        )
        self.vllm_iteration = counts(
            "vllm:iteration_tokens_total", "Tokens computed in a step.", vllm
        )

    def of(self, model: str) -> "ModelMeter":
        return ModelMeter(self, (model, self._replica))


class ModelMeter:
    """An EngineObserver, which is also told of the tokens and ends of requests."""

    def __init__(self, all_models: EngineMetrics, labels: tuple[str, str]) -> None:
        def bound(metric: Any, *more: str) -> Any:
            return metric.labels(*labels, *more)

        every = all_models
        self._tokens = {
            kind: bound(every.tokens, kind) for kind in ("source", "prompt", "generated")
        }
        self._phases = {
            phase: bound(every.step, phase) for phase in ("encode", "prefill", "decode", "host")
        }
        self._success = {reason: bound(every.vllm_success, reason) for reason in ("stop", "length")}
        self._rows = (bound(every.rows), bound(every.vllm_running))
        self._waiting = (bound(every.waiting), bound(every.vllm_waiting))
        self._slots, self._cache = bound(every.slots), bound(every.vllm_cache)
        self._kv_bytes, self._padding = bound(every.kv_bytes), bound(every.padding)
        self._batch_rows, self._iteration = bound(every.batch_rows), bound(every.vllm_iteration)
        self._queue = (bound(every.queue), bound(every.vllm_queue))
        self._first_token = (bound(every.first_token), bound(every.vllm_first_token))
        self._inter_token = (bound(every.inter_token), bound(every.vllm_inter_token))
        self._request_seconds = bound(every.vllm_request)
        self._prompt, self._generated = bound(every.vllm_prompt), bound(every.vllm_generated)
        self._request_prompt = bound(every.vllm_request_prompt)
        self._request_generated = bound(every.vllm_request_generated)

    def on_step(self, report: StepReport, stats: EngineStats, step_seconds: float) -> None:
        self.on_stats(stats)
        for phase, seconds in report.phase_seconds.items():
            self._phases[phase].observe(seconds)
        self._phases["host"].observe(step_seconds - sum(report.phase_seconds.values()))
        for seconds in report.queue_seconds:
            for histogram in self._queue:
                histogram.observe(seconds)
        if report.num_rows:
            self._batch_rows.observe(report.num_rows)
        if report.num_padded_tokens:
            self._padding.set(1 - report.num_source_tokens / report.num_padded_tokens)
        self._iteration.observe(
            report.num_rows + report.num_source_tokens + report.num_prefilled_tokens
        )

    def on_stats(self, stats: EngineStats) -> None:
        for gauge in self._rows:
            gauge.set(stats.num_rows)
        for gauge in self._waiting:
            gauge.set(stats.num_waiting)
        self._slots.set(stats.num_slots)
        self._cache.set(stats.num_rows / stats.num_slots)
        self._kv_bytes.set(stats.kv_bytes)

    def on_first_token(self, seconds: float) -> None:
        for histogram in self._first_token:
            histogram.observe(seconds)

    def on_next_token(self, seconds: float) -> None:
        for histogram in self._inter_token:
            histogram.observe(seconds)

    def on_finished(self, event: FinishedEvent, seconds: float) -> None:
        num_given = event.num_source_tokens + event.num_prompt_tokens
        self._tokens["source"].inc(event.num_source_tokens)
        self._tokens["prompt"].inc(event.num_prompt_tokens)
        self._tokens["generated"].inc(event.num_generated_tokens)
        self._prompt.inc(num_given)
        self._generated.inc(event.num_generated_tokens)
        self._request_prompt.observe(num_given)
        self._request_generated.observe(event.num_generated_tokens)
        self._request_seconds.observe(seconds)
        self._success[event.reason].inc()


class MeasuredEngine:
    """An engine whose requests are timed; it is an EnginePort as the engine itself is."""

    def __init__(self, engine: EnginePort, meter: ModelMeter) -> None:
        self._engine = engine
        self._meter = meter

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        started = previous = time.perf_counter()
        tell = self._meter.on_first_token
        async with aclosing(self._engine.generate(request)) as events:
            async for event in events:
                now = time.perf_counter()
                if isinstance(event, TokenEvent):
                    tell(now - previous)
                    previous, tell = now, self._meter.on_next_token
                elif isinstance(event, FinishedEvent):
                    self._meter.on_finished(event, now - started)
                yield event

    async def run(self, requests: Sequence[GenerationRequest]) -> list[list[Event]]:
        started = time.perf_counter()
        outcomes = await self._engine.run(requests)
        seconds = time.perf_counter() - started
        for events in outcomes:
            if isinstance(events[-1], FinishedEvent):
                self._meter.on_finished(events[-1], seconds)
        return outcomes

"""Prometheus metrics of engines: how they step, and their requests as the engine sees them.

What vLLM measures, too, has vLLM's name, so that dashboards made for it work; the rest is named
`attendant_*`.

A metric is made in `EngineMetrics`, bound in `ModelRecorder`, and described in docs/serving.md.
What a step counts is a field of `StepStats` (`serving/engine/stats.py`).
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from serving.engine.stats import EngineStats, StepStats
from serving.observability.metrics import REQUEST_BUCKETS, UNFINISHED, Metrics
from serving.observability.request_stats import GenerationStats, current_request_stats
from serving.pipelines.decoding import EnginePort
from serving.requests.request import (
    Event,
    FinalEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    TokenEvent,
)

_STEP_BUCKETS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05),
    *(0.075, 0.1, 0.2, 0.5, 1.0),
)
_COUNT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class _Family:
    """Makes metrics that share their first labels: the model and the replica."""

    def __init__(self, registry: CollectorRegistry, labels: tuple[str, str]) -> None:
        self._registry, self._labels = registry, labels

    def gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, self._labels, registry=self._registry)

    def counter(self, name: str, text: str, *more_labels: str) -> Counter:
        return Counter(name, text, (*self._labels, *more_labels), registry=self._registry)

    def steps(self, name: str, text: str, *more_labels: str) -> Histogram:
        return self._histogram(name, text, _STEP_BUCKETS, more_labels)

    def requests(self, name: str, text: str) -> Histogram:
        return self._histogram(name, text, REQUEST_BUCKETS)

    def counts(self, name: str, text: str) -> Histogram:
        return self._histogram(name, text, _COUNT_BUCKETS)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], more_labels: tuple[str, ...] = ()
    ) -> Histogram:
        labels = (*self._labels, *more_labels)
        return Histogram(name, text, labels, buckets=buckets, registry=self._registry)


class EngineMetrics:
    """The metrics of all engines of a replica. What vLLM measures has vLLM's name and labels."""

    def __init__(self, metrics: Metrics) -> None:
        self._replica = metrics.replica
        new = _Family(metrics.registry, ("model", "replica"))
        self.slots = new.gauge("attendant_slots", "Rows there are.")
        self.waiting_tokens = new.gauge(
            "attendant_waiting_tokens",
            "Work of requests that wait, in tokens: each counts once to read and twice to write.",
        )
        self.kv_bytes = new.gauge("attendant_kv_bytes", "What the states of the rows in use fill.")
        self.padding = new.gauge("attendant_padding_ratio", "Padding in the last batch encoded.")
        self.batch_rows = new.counts("attendant_batch_rows", "Rows of each decoding step.")
        self.step = new.steps("attendant_step_seconds", "Time of a step by phase.", "phase")
        self.encoder_cache = new.counter(
            "attendant_encoder_cache", "Sources, found in the cache or not.", "result"
        )
        self.expired = new.counter(
            "attendant_deadlines_exceeded", "Requests whose own deadline has passed."
        )
        self.reorders = new.counter(
            "attendant_beam_reorders", "Rows of beam searches that took over another row's states."
        )

        new = _Family(metrics.registry, ("model_name", "engine"))
        self.running = new.gauge("vllm:num_requests_running", "Rows in use.")
        self.waiting = new.gauge("vllm:num_requests_waiting", "Requests without a row.")
        self.cache_usage = new.gauge("vllm:kv_cache_usage_perc", "Rows in use, of those there are.")
        self.prompt = new.counter("vllm:prompt_tokens", "Source and prompt tokens.")
        self.generated = new.counter("vllm:generation_tokens", "Generated tokens.")
        self.success = metrics.finished
        self.prefix_queries = new.counter(
            "vllm:prefix_cache_queries", "Prompt tokens searched in the cache."
        )
        self.prefix_hits = new.counter("vllm:prefix_cache_hits", "Prompt tokens found in it.")
        self.first_token = new.requests(
            "vllm:time_to_first_token_seconds", "Time to a stream's first token."
        )
        self.inter_token = new.steps("vllm:inter_token_latency_seconds", "Time between tokens.")
        self.request = new.requests(
            "vllm:e2e_request_latency_seconds", "Time of a request to the engine."
        )
        self.queue = new.requests("vllm:request_queue_time_seconds", "Time in the queue.")
        self.prefill = new.requests(
            "vllm:request_prefill_time_seconds", "Time of reading a request's source or prompt."
        )
        self.decode = new.requests(
            "vllm:request_decode_time_seconds", "Time from a request's first step to its end."
        )
        self.most_generated = new.counts(
            "vllm:request_max_num_generation_tokens",
            "Tokens of a request's longest output.",
        )
        self.request_prompt = new.counts(
            "vllm:request_prompt_tokens", "Source and prompt tokens of a request."
        )
        self.request_generated = new.counts(
            "vllm:request_generation_tokens", "Generated tokens of a request."
        )
        self.iteration = new.counts("vllm:iteration_tokens_total", "Tokens computed in a step.")

    def recorder_for(self, model: str) -> "ModelRecorder":
        return ModelRecorder(self, model, self._replica)

    def remove(self, model: str) -> None:
        """Remove the gauges of a model that is unloaded; what was counted of it stays."""
        for metric in vars(self).values():
            if isinstance(metric, Gauge):
                metric.remove(model, self._replica)


class ModelRecorder:
    """Records the metrics of one model: of its engine's steps, and of its requests."""

    def __init__(self, metrics: EngineMetrics, model: str, replica: str) -> None:
        # Labels are bound once: the library takes a lock and makes texts of them each time.
        def bind(metric: Any, *more_labels: str) -> Any:
            return metric.labels(model, replica, *more_labels)

        self._model = model
        phases = ("encode", "prefill", "decode", "host")
        self._phases = {phase: bind(metrics.step, phase) for phase in phases}
        reasons = (*FinishReason, *UNFINISHED.values())
        self._success = {reason: bind(metrics.success, reason) for reason in reasons}
        self._running, self._waiting = bind(metrics.running), bind(metrics.waiting)
        self._waiting_tokens = bind(metrics.waiting_tokens)
        self._slots, self._cache_usage = bind(metrics.slots), bind(metrics.cache_usage)
        self._kv_bytes, self._padding = bind(metrics.kv_bytes), bind(metrics.padding)
        self._batch_rows, self._iteration = bind(metrics.batch_rows), bind(metrics.iteration)
        self._queue = bind(metrics.queue)
        self._first_token, self._inter_token = bind(metrics.first_token), bind(metrics.inter_token)
        self._request_seconds = bind(metrics.request)
        self._most_generated = bind(metrics.most_generated)
        self._prefill, self._decode = bind(metrics.prefill), bind(metrics.decode)
        self._prompt, self._generated = bind(metrics.prompt), bind(metrics.generated)
        self._request_prompt = bind(metrics.request_prompt)
        self._request_generated = bind(metrics.request_generated)
        self._prefix_queries = bind(metrics.prefix_queries)
        self._prefix_hits = bind(metrics.prefix_hits)
        self._encoder_hits = bind(metrics.encoder_cache, "hit")
        self._encoder_misses = bind(metrics.encoder_cache, "miss")
        self._expired, self._reorders = bind(metrics.expired), bind(metrics.reorders)

    def record_requests(self, engine: EnginePort) -> "RecordedEngine":
        return RecordedEngine(engine, self)

    def on_step(self, step: StepStats, stats: EngineStats, step_seconds: float) -> None:
        self.on_stats(stats)
        for phase, seconds in step.phase_seconds.items():
            self._phases[phase].observe(seconds)
        self._phases["host"].observe(step_seconds - sum(step.phase_seconds.values()))
        for seconds in step.queue_seconds:
            self._queue.observe(seconds)
        if step.num_rows:
            self._batch_rows.observe(step.num_rows)
        if step.num_padded_tokens:
            self._padding.set(1 - step.num_source_tokens / step.num_padded_tokens)
        num_read = step.num_source_tokens + step.num_prefilled_tokens
        self._iteration.observe(step.num_rows + num_read)
        for counter, amount in (
            (self._reorders, step.num_reorders),
            (self._expired, step.num_expired),
            (self._prefix_queries, step.num_prefix_hits + step.num_prefix_misses),
            (self._prefix_hits, step.num_prefix_hits),
            (self._encoder_hits, step.num_encoder_hits),
            (self._encoder_misses, step.num_encoder_misses),
        ):
            if amount:  # most steps have none of these, and each call takes a lock
                counter.inc(amount)

    def on_stats(self, stats: EngineStats) -> None:
        self._running.set(stats.num_rows)
        self._waiting.set(stats.num_waiting)
        self._waiting_tokens.set(stats.num_waiting_tokens)
        self._slots.set(stats.num_slots)
        self._cache_usage.set(stats.num_rows / stats.num_slots)
        self._kv_bytes.set(stats.kv_bytes)

    def on_first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def on_next_token(self, seconds: float) -> None:
        self._inter_token.observe(seconds)

    def on_finished(self, event: FinishedEvent, started_at: float, seconds: float) -> None:
        """Record a request that has ended. started_at: a time of `time.perf_counter`."""
        num_input_tokens = event.num_source_tokens + event.num_prompt_tokens
        request_stats = current_request_stats()
        request_stats.add(num_input_tokens, event.num_generated_tokens, event.queue_seconds)
        if request_stats.generations is not None:
            generation = GenerationStats(
                self._model,
                started_at,
                event.queue_seconds,
                event.prefill_seconds,
                event.decode_seconds,
                event.num_steps,
                num_input_tokens,
                event.num_generated_tokens,
                reads_source=event.num_source_tokens > 0,
            )
            request_stats.generations.append(generation)
        self._prompt.inc(num_input_tokens)
        self._generated.inc(event.num_generated_tokens)
        self._request_prompt.observe(num_input_tokens)
        self._request_generated.observe(event.num_generated_tokens)
        self._request_seconds.observe(seconds)
        self._prefill.observe(event.prefill_seconds)
        self._decode.observe(event.decode_seconds)
        longest = max((len(hypothesis.tokens.ids) for hypothesis in event.hypotheses), default=0)
        self._most_generated.observe(longest)
        self._success[event.reason].inc()


class RecordedEngine:
    """Records an engine's requests; it is an EnginePort as the engine itself is."""

    def __init__(self, engine: EnginePort, recorder: ModelRecorder) -> None:
        self._engine = engine
        self._recorder = recorder

    @property
    def max_rows(self) -> int:
        return self._engine.max_rows

    def check_room(self, work: int, share: str, priority: int) -> None:
        self._engine.check_room(work, share, priority)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        started = previous = time.perf_counter()
        observe = self._recorder.on_first_token
        async with aclosing(self._engine.generate(request)) as events:
            async for event in events:
                now = time.perf_counter()
                if isinstance(event, TokenEvent):
                    observe(now - previous)
                    previous, observe = now, self._recorder.on_next_token
                elif isinstance(event, FinishedEvent):
                    self._recorder.on_finished(event, started, now - started)
                yield event

    async def stream(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncGenerator[list[Event], None]:
        started = time.perf_counter()
        latest: dict[str, float] = {}
        async with aclosing(self._engine.stream(requests)) as batches:
            async for events in batches:
                now = time.perf_counter()
                for event in events:
                    self._time(event, now, started, latest)
                yield events

    def _time(self, event: Event, now: float, started: float, latest: dict[str, float]) -> None:
        """Time one event of several requests. latest: time of the last token of each request."""
        if isinstance(event, TokenEvent):
            previous = latest.get(event.request_id)
            if previous is None:
                self._recorder.on_first_token(now - started)
            else:
                self._recorder.on_next_token(now - previous)
            latest[event.request_id] = now
        elif isinstance(event, FinishedEvent):
            self._recorder.on_finished(event, started, now - started)

    async def run(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        started = time.perf_counter()
        outcomes = await self._engine.run(requests)
        seconds = time.perf_counter() - started
        for event in outcomes:
            if isinstance(event, FinishedEvent):
                self._recorder.on_finished(event, started, seconds)
        return outcomes

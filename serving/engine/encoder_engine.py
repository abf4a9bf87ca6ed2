"""An engine for bundles that only encode: a request ends in the step in which it is taken.

    submit -> queue -> batches of similar lengths -> final event with a vector

It shares the queue, budgets, deadlines and final events with the decoding engine, but has no rows
and no states. Like the decoding engine it works with token ids and is independent of the
architecture.
"""

import time
from collections.abc import Sequence

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import EMBEDDING, LOGITS, Manifest, Task
from serving.bundle.opening import Bundle
from serving.engine.attention_map import keep_source
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation, encode_groups, encode_span
from serving.engine.measures import EngineStats, StepStats
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.runner import Encoder
from serving.engine.runtime.session import open_graphs, with_device
from serving.engine.scheduling.admission import SharedParts
from serving.engine.scheduling.fair_queue import JobSize
from serving.engine.scheduling.scheduler import EventQueue
from serving.request import Event, GenerationRequest, Vector


class EncodingEngine:
    """Encodes requests. Every accepted request gets exactly one final event in a later `step`."""

    def __init__(
        self,
        bundle: Bundle,
        config: EngineConfig | None = None,
        graphs: Graphs | None = None,
        shared: SharedParts | None = None,
        job_size: JobSize = JobSize.COMMON,
    ) -> None:
        """Load a bundle's graph. Arguments and errors are those of `Engine`."""
        self.manifest, self.job_size = bundle.manifest, job_size
        self.config = with_device(config or EngineConfig(), bundle.manifest)
        self.step_stats = StepStats()
        graphs = graphs or open_graphs(bundle, self.config)
        shared = shared or SharedParts.of(bundle.manifest, self.config, graphs)
        self.scheduler, self._queue = shared.scheduler, shared.scheduler.queue_for_engine(job_size)
        self._events_out = EventQueue(self._queue, _stay)
        self._vectors = Vectors(bundle.manifest, graphs, self.scheduler.slots)

    def warm_up(self) -> None:
        """Encode the batch that needs most memory, so that missing memory is found now."""
        if self.config.device != "cpu":
            self._vectors.warm_up()

    @property
    def has_work(self) -> bool:
        return self._queue.has_work or bool(self._events_out)

    def stats(self) -> EngineStats:
        """Return the number of waiting requests; between two steps no request is in progress."""
        return EngineStats(self._queue.num_waiting, 0, self.scheduler.slots, kv_bytes=0)

    def submit(self, *requests: GenerationRequest) -> None:
        """Accept requests, all or none. Raises RequestError or Overloaded; then none has events."""
        self.scheduler.add(self.scheduler.accept(requests, time.perf_counter()))

    def cancel(self, request_id: str) -> None:
        """End a request if it waits; ignore one that has ended."""
        self._events_out.cancel(request_id)

    def cancel_all(self) -> None:
        self._events_out.cancel_all()

    def step(self) -> list[Event]:
        """Encode as many waiting requests as the budgets allow, and return their events."""
        self.step_stats = StepStats()
        self.step_stats.num_expired = self._events_out.expire(time.perf_counter())
        taken = self._queue.take_sources(self.scheduler.slots)
        for group in encode_groups(taken, self.config.max_encode_tokens):
            try:
                self._encode(group)
            except Exception as error:
                self._events_out.fail(group, error)
        return self._events_out.take_all()

    def _encode(self, group: list[Generation]) -> None:
        started = time.perf_counter()
        self.step_stats.joined(group, started)
        span = encode_span(group[-1])
        vectors = self._vectors.of([generation.request for generation in group], span)
        for generation in group:
            if (
                generation.selections
            ):  # encode it again, alone, so that other requests are not affected
                keep_source(generation, self._vectors.attention(generation.request, span))
        self.step_stats.encoded(group, [], span)
        self.step_stats.add_seconds("encode", started)
        seconds = time.perf_counter() - started
        for generation, vector in zip(group, vectors, strict=True):
            self._events_out.end(generation, _finished(generation, vector, seconds))


def _finished(generation: Generation, vector: Vector, seconds: float) -> Event:
    event = generation.encoded()
    event.encoding, event.prefill_seconds = vector, seconds
    return event


def _stay(generation: Generation) -> None:
    """Do nothing: an encoder has no rows to release."""


class Vectors:
    """The graph and its output arrays.

    max_rows: maximum number of rows in one run.
    """

    def __init__(self, manifest: Manifest, graphs: Graphs, max_rows: int) -> None:
        encoder, is_embedder = manifest.encoder, manifest.task is Task.EMBED
        assert encoder is not None and graphs.encode is not None
        self._name = EMBEDDING if is_embedder else LOGITS
        width = encoder.dimension if is_embedder else len(encoder.labels)
        assert width is not None
        self._written = np.zeros((max_rows, width), np.float32)
        self._encoder = Encoder(manifest, graphs, self._scratch)

    def of(self, requests: Sequence[GenerationRequest], span: int) -> list[Vector]:
        """Return the vector of each request; sources are padded to `span`."""
        sources = [request.source_ids or () for request in requests]
        self._encoder.run(sources, span, [request.pair_start for request in requests])
        return list(self._written[: len(requests)].copy())

    def attention(self, request: GenerationRequest, span: int) -> Array:
        """Return the attention weights of a request's source; see `Encoder.run_with_attention`."""
        return self._encoder.run_with_attention(request.source_ids or (), span, request.pair_start)

    def warm_up(self) -> None:
        self._encoder.warm_up()

    def _scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return {self._name: self._written[:num_rows]}

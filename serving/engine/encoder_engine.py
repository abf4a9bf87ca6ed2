"""An engine for bundles that only encode: a request ends in the step in which it is taken.

    submit -> queue -> batches of similar lengths -> final event with what the graph says of a text

It shares the queue, budgets, deadlines and final events with the decoding engine, but has no rows
and no states. Like the decoding engine it works with token ids and is independent of the
architecture.
"""

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from serving.bundle.manifest import BATCH, SOURCE, Manifest, Shape
from serving.bundle.opening import Bundle
from serving.engine.arrays import Array
from serving.engine.attention_map import store_source_attention
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.runtime.encoder import Encoder
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.session import open_graphs, with_device
from serving.engine.scheduling.admission import SharedParts
from serving.engine.scheduling.fair_queue import JobSize
from serving.engine.scheduling.source_batches import encode_groups, encode_span
from serving.engine.states.store import max_span
from serving.engine.stats import EngineStats, StepStats
from serving.requests.request import Encoding, Event, GenerationRequest


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
        self.lent_threads = graphs.lent_threads
        shared = shared or SharedParts.create(bundle.manifest, self.config, graphs)
        self.scheduler, self._queue = shared.scheduler, shared.scheduler.queue_for_engine(job_size)
        self._graph = EncodeGraph(bundle.manifest, graphs, self.config, self.scheduler.slots)

    def warm_up(self) -> None:
        """Encode the batch that needs most memory, so that missing memory is found now."""
        if self.config.device != "cpu":
            self._graph.encoder.warm_up()

    @property
    def has_work(self) -> bool:
        return self._queue.has_work

    def stats(self) -> EngineStats:
        """Return the number of waiting requests; between two steps no request is in progress."""
        return EngineStats(self._queue.num_waiting, 0, self.scheduler.slots, kv_bytes=0)

    def submit(self, *requests: GenerationRequest) -> None:
        """Accept requests, all or none. Raises RequestError or Overloaded; then none has events."""
        self.scheduler.add(self.scheduler.accept(requests, time.perf_counter()))

    def cancel(self, request_id: str) -> None:
        """End a request if it waits; ignore one that has ended."""
        self._queue.cancel(request_id)

    def cancel_all(self) -> None:
        self._queue.cancel_all()

    def step(self) -> list[Event]:
        """Encode as many waiting requests as the budgets allow, and return their events."""
        self.step_stats = StepStats()
        self.step_stats.num_expired = self._queue.expire(time.perf_counter())
        generations = self._queue.take_sources(self.scheduler.slots)
        for group in encode_groups(generations, self.config.max_encode_tokens):
            try:
                self._encode(group)
            except Exception as error:
                self._queue.fail(group, error)
        return self._queue.take_events()

    def _encode(self, group: list[Generation]) -> None:
        started = time.perf_counter()
        self.step_stats.count_admitted(group, started)
        span = encode_span(group[-1])
        encodings = self._graph.encode([generation.request for generation in group], span)
        for generation in group:
            if generation.selections:  # encode it again, alone: others need no attention weights
                source_ids = generation.request.source_ids or ()
                weights = self._graph.encoder.run_with_attention(
                    source_ids, span, generation.request.pair_start
                )
                store_source_attention(generation, weights)
        self.step_stats.count_encoded(group, [], span)
        self.step_stats.add_seconds("encode", started)
        seconds = time.perf_counter() - started
        for generation, encoding in zip(group, encodings, strict=True):
            self._queue.end(generation, generation.encoded_event(encoding, seconds))


class EncodeGraph:
    """The encode graph and its output arrays."""

    def __init__(
        self, manifest: Manifest, graphs: Graphs, config: EngineConfig, max_rows: int
    ) -> None:
        """max_rows: maximum number of rows in one run."""
        self._specs = manifest.graphs["encode"].outputs
        sizes = {BATCH: max_rows}
        if any(SOURCE in spec.shape for spec in self._specs):  # rows times their padded length
            sizes = {BATCH: max(config.max_encode_tokens, max_span(manifest)), SOURCE: 1}
        self._flat_outputs: dict[str, Array] = {
            spec.name: np.zeros(math.prod(_resolve_shape(spec.shape, sizes)), spec.dtype)
            for spec in self._specs
        }
        self.encoder = Encoder(manifest, graphs, self._outputs)

    def encode(self, requests: Sequence[GenerationRequest], span: int) -> list[Encoding]:
        """Return the outputs for each request; sources are padded to `span`."""
        sources = [request.source_ids or () for request in requests]
        self.encoder.run(sources, span, [request.pair_start for request in requests])
        arrays = {name: array.copy() for name, array in self._outputs(len(requests), span).items()}
        per_token = {spec.name for spec in self._specs if SOURCE in spec.shape}
        return [
            {
                name: array[row, : len(ids)] if name in per_token else array[row]
                for name, array in arrays.items()
            }
            for row, ids in enumerate(sources)
        ]

    def _outputs(self, num_rows: int, span: int) -> dict[str, Array]:
        shapes = {
            spec.name: _resolve_shape(spec.shape, {BATCH: num_rows, SOURCE: span})
            for spec in self._specs
        }
        return {
            name: self._flat_outputs[name][: math.prod(shape)].reshape(shape)
            for name, shape in shapes.items()
        }


def _resolve_shape(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[axis] if isinstance(axis, str) else axis for axis in shape)

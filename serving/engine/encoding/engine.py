"""Encodes the sources of a bundle that only encodes: a request ends in the step that takes it.

    submit -> queue -> batches of like lengths -> final event with a vector

Queue, budgets, deadlines and final events are those of the engine that decodes; there are no rows
and no states. Like that engine it knows token ids only, and no architecture.
"""

import time

from serving.bundle.opening import Bundle
from serving.engine.admission.finals import Finals
from serving.engine.admission.lanes import Lane
from serving.engine.admission.spans import encode_groups, encode_span
from serving.engine.attention.looking import note_source
from serving.engine.config import EngineConfig
from serving.engine.encoding.vectors import Vectors
from serving.engine.generation import Generation
from serving.engine.graphs.graph import Graphs
from serving.engine.graphs.session import open_graphs, settled
from serving.engine.measures import EngineStats, StepStats
from serving.engine.shared import Shared
from serving.request import Event, FinishReason, GenerationRequest, Vector


class EncodingEngine:
    """Gives every request that `submit` accepts exactly one final event from a later `step`."""

    def __init__(
        self,
        bundle: Bundle,
        config: EngineConfig | None = None,
        graphs: Graphs | None = None,
        shared: Shared | None = None,
        lane: Lane = Lane.COMMON,
    ) -> None:
        """Load a bundle's graph. Arguments and errors are those of `Engine`."""
        self.manifest, self.lane = bundle.manifest, lane
        self.config = settled(config or EngineConfig(), bundle.manifest)
        self.step_stats = StepStats()
        graphs = graphs or open_graphs(bundle, self.config)
        shared = shared or Shared.of(bundle.manifest, self.config, graphs)
        self.desk, self._seat = shared.desk, shared.desk.seat(lane)
        self._finals = Finals(self._seat, _stay)
        self._vectors = Vectors(bundle.manifest, graphs, self.desk.slots)

    def warm_up(self) -> None:
        """Encode what costs most memory, so that memory which is missing is missed now."""
        if self.config.device != "cpu":
            self._vectors.warm_up()

    @property
    def has_work(self) -> bool:
        return self._seat.has_work or bool(self._finals)

    def stats(self) -> EngineStats:
        """Say what waits: between two steps nothing is in progress."""
        return EngineStats(self._seat.num_waiting, 0, self.desk.slots, kv_bytes=0)

    def submit(self, *requests: GenerationRequest) -> None:
        """Accept requests, all or none. Raises RequestError or Overloaded; then none has events."""
        self.desk.add(self.desk.accept(requests, time.perf_counter()))

    def cancel(self, request_id: str) -> None:
        """End a request now, if it waits; one that has ended already is left alone."""
        self._finals.cancel(request_id)

    def cancel_all(self) -> None:
        self._finals.cancel_all()

    def step(self) -> list[Event]:
        """Encode as many of those who wait as the budgets allow, and return what happened."""
        self.step_stats = StepStats()
        self.step_stats.num_expired = self._finals.expire(time.perf_counter())
        taken = self._seat.take_sources(self.desk.slots)
        for group in encode_groups(taken, self.config.max_encode_tokens):
            try:
                self._encode(group)
            except Exception as error:
                self._finals.fail(group, error)
        return self._finals.tell()

    def _encode(self, group: list[Generation]) -> None:
        started = time.perf_counter()
        self.step_stats.joined(group, started)
        span = encode_span(group[-1])
        vectors = self._vectors.of([generation.request for generation in group], span)
        for generation in group:
            if generation.sights:  # read again, alone: company pays nothing, vectors stay
                note_source(generation, self._vectors.look(generation.request, span))
        self.step_stats.encoded(group, [], span)
        self.step_stats.add_seconds("encode", started)
        seconds = time.perf_counter() - started
        for generation, vector in zip(group, vectors, strict=True):
            self._finals.end(generation, _finished(generation, vector, seconds))


def _finished(generation: Generation, vector: Vector, seconds: float) -> Event:
    event = generation.finished(FinishReason.STOP, num_generated=0)
    event.encoding, event.prefill_seconds = vector, seconds
    return event


def _stay(generation: Generation) -> None:
    """Leave nothing: what was taken has ended before the step has."""

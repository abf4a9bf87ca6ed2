"""Continuous batching of generations over one bundle, on one thread, in token ids.

    submit -> admission (encode, prefill) -> batch -> step, step, ... -> final event

The engine knows states and graphs only as the manifest lists them: no architecture, and no text.
`bridge.py` connects it to asyncio.
"""

import logging
import time
from collections.abc import Iterable
from functools import partial

from serving.bundle.opening import Bundle
from serving.engine.attention_map import keep_prompt_steps, needed_outputs
from serving.engine.config import EngineConfig
from serving.engine.cuda.device_exchange import Around, make_exchange
from serving.engine.decoding.scores import Scores
from serving.engine.decoding.search import Search
from serving.engine.decoding.speculative_decoding import Speculation
from serving.engine.generation import Generation
from serving.engine.measures import EngineStats, StepStats
from serving.engine.rows import Batch, Decision, Rows
from serving.engine.runtime.graph import Graph, Graphs
from serving.engine.runtime.runner import Runner
from serving.engine.runtime.session import open_graphs, settled
from serving.engine.scheduling.admission import Admission, Shared, Surroundings
from serving.engine.scheduling.fair_queue import Lane
from serving.engine.scheduling.scheduler import Finals
from serving.engine.states.store import row_bytes
from serving.request import Event, GenerationRequest

logger = logging.getLogger(__name__)


class Engine:
    """Gives every request that `submit` accepts exactly one final event from a later `step`."""

    def __init__(
        self,
        bundle: Bundle,
        config: EngineConfig | None = None,
        graphs: Graphs | None = None,
        excluded_ids: Iterable[int] = (),
        shared: Shared | None = None,
        lane: Lane = Lane.COMMON,
    ) -> None:
        """Load a bundle's graphs. Raises BundleError or DeviceError.

        graphs: stand in for the bundle's own, in tests.
        excluded_ids: tokens that only those requests get that name them.
        shared: what it has in common with other engines of the bundle, on other threads.
        lane: whom it serves.
        """
        self.manifest, self.lane = bundle.manifest, lane
        manifest = bundle.manifest
        self.config = config = settled(config or EngineConfig(), manifest)
        self.step_stats = StepStats()
        graphs = graphs or open_graphs(bundle, config)
        shared = shared or Shared.of(manifest, config, graphs)
        self.desk, self._seat = shared.desk, shared.desk.seat(lane)
        slots = self.desk.slots
        self._batch = Batch(slots)
        self._search = Search(manifest, self._batch, excluded_ids)
        around = Around(manifest, self._batch, graphs, self._search.deciders)
        make = partial(make_exchange, around)
        self._runner = Runner(manifest, graphs, self._batch, make, config)
        self._exchange = self._runner.exchange
        followers = [*self._search.followers, *self._exchange.followers]
        self._speculation = self._speculation_by(graphs.verify) if config.speculation else None
        followers += self._speculation.followers if self._speculation else ()
        self._rows = Rows(self._batch, self._runner.states, followers)
        self._finals = Finals(self._seat, self._leave)
        self._admission = Admission(
            Surroundings(
                config,
                self._seat,
                shared.cache,
                self._batch,
                self._runner,
                self._rows,
                self._finals.fail,
            )
        )
        self._row_bytes = row_bytes(manifest.states)

    def _speculation_by(self, graph: Graph | None) -> Speculation | None:
        if graph is None:
            logger.info(
                "%s drafts nothing: it has no graph to verify drafts by", self.manifest.name
            )
            return None
        states = self._runner.states
        return Speculation(self.manifest, graph, self._batch, states, self.config)

    def warm_up(self) -> None:
        """Let a device do what it does but once, before the first request and on the thread that
        steps. Raises DeviceError or OutOfMemory.
        """
        if self.config.device == "cpu":
            return
        started = time.perf_counter()
        num_shapes = self._runner.warm_up()
        seconds = time.perf_counter() - started
        logger.info("%s: %d shapes recorded, %.1f s", self.manifest.name, num_shapes, seconds)

    @property
    def has_work(self) -> bool:
        return self._seat.has_work or bool(self._finals)

    def stats(self) -> EngineStats:
        batch, size = self._batch, self._row_bytes
        rows = batch.num_rows
        kv_bytes = rows * size.fixed
        kv_bytes += int(batch.past_lengths[:rows].sum()) * size.per_target_token
        kv_bytes += int(batch.source_lengths[:rows].sum()) * size.per_source_token
        num_underway = self._admission.num_underway
        num_waiting = self._seat.num_waiting + num_underway
        slots = batch.slots if self.lane is Lane.COMMON else rows
        return EngineStats(num_waiting, rows, slots, kv_bytes, num_underway)

    def submit(self, *requests: GenerationRequest) -> None:
        """Accept requests, all or none. Raises RequestError or Overloaded; then none has events."""
        self.desk.add(self.desk.accept(requests, time.perf_counter()))

    def cancel(self, request_id: str) -> None:
        """End a request now, if it waits or is this engine's."""
        self._finals.cancel(request_id)

    def cancel_all(self) -> None:
        self._finals.cancel_all()

    def step(self) -> list[Event]:
        """Let the waiting in, give every row one more token or, where drafts came true, some more,
        and return what happened.
        """
        self.step_stats = StepStats()
        self.step_stats.num_expired = self._finals.expire(time.perf_counter())
        self._admit()
        if self._batch.num_rows:
            self._batch.num_steps += 1
            try:
                if self._speculation is None:
                    self._decode()
                else:
                    self._speculate(self._speculation)
            except Exception as error:
                self._fail_batch(error)
        return self._finals.tell()

    def _leave(self, generation: Generation) -> None:
        """Take a generation out of prefilling or of the batch."""
        if not self._admission.remove(generation):
            self._rows.remove_all(generation)

    def _admit(self) -> None:
        """Let the waiting in, but behind no run whose tokens the rows have not taken yet."""
        if not self._batch.num_rows:
            self._runner.abandon()
        if not self._exchange.is_ahead:
            self._admission.admit(self.step_stats)

    def _decode(self) -> None:
        scores = self._run()
        decision = self._search.decide(scores)
        self._rows.apply(decision)
        self._report(decision)

    def _speculate(self, speculation: Speculation) -> None:
        """Let rows also take what else a run has scored, as long as they say what was drafted."""
        started, num_rows = time.perf_counter(), self._batch.num_rows
        self._decode()
        while speculation.goes_on():
            self._decode()
        speculation.note_step(num_rows, time.perf_counter() - started)
        if self.step_stats.num_drafted_tokens:
            self.step_stats.num_accepted_tokens = speculation.num_hits

    def _run(self) -> Scores:
        """Run the rows, unless the last run has scored their next tokens too."""
        if self._speculation is not None and self._speculation.is_verifying:
            return self._speculation.scores()
        started = time.perf_counter()
        scores = self._verify() or self._run_step()
        self.step_stats.decoded(scores.num_rows, started)
        return scores

    def _verify(self) -> Scores | None:
        """Run the rows with what is drafted for them, where that pays."""
        speculation = self._speculation
        if speculation is None or not speculation.is_worthwhile():
            return None
        self.step_stats.num_drafted_tokens = speculation.launch(self._search.needs_logp)
        return speculation.scores()

    def _run_step(self) -> Scores:
        """Run the rows; where it can be, once more, while the host decides about the first run."""
        if not self._exchange.is_ahead:
            self._launch()
        if self._exchange.may_go_ahead and not self._admission.is_due:
            self._launch()
        scores = self._exchange.receive()
        keep_prompt_steps(self._batch, scores)
        return scores

    def _launch(self) -> None:
        outputs = needed_outputs(self._batch, self._search.needs_logp)
        self._runner.launch(self._batch.num_rows, outputs)

    def _report(self, decision: Decision) -> None:
        self._finals.add(decision.events)
        self.step_stats.num_reorders = len(decision.copies)
        for generation, event in decision.endings:
            event.prefill_seconds, event.decode_seconds = generation.times(time.perf_counter())
            event.num_steps = self._batch.num_steps - generation.entered_step
            self._finals.end(generation, event)

    def _fail_batch(self, error: Exception) -> None:
        generations = list(dict.fromkeys(self._batch.generations))
        self._runner.abandon()
        if self._speculation is not None:
            self._speculation.abandon()
        self._rows.clear()
        self._finals.fail(generations, error)

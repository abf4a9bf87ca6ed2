"""Continuous batching of generations over one bundle, on one thread, in token ids.

    submit -> admission (encode, prefill) -> batch -> step, step, ... -> final event

The engine uses only the states and graphs that the manifest lists. It is independent of the
architecture, and works without text. `bridge.py` connects it to asyncio.
"""

import logging
import time
from collections.abc import Iterable

import numpy as np

from serving.bundle.opening import Bundle
from serving.engine.attention_map import needed_outputs, store_prompt_step_attention
from serving.engine.config import EngineConfig
from serving.engine.cuda.device_runner import make_runner
from serving.engine.decoding.scores import Scores
from serving.engine.decoding.search import Search
from serving.engine.generation import Generation
from serving.engine.rows import Batch, Decision, Rows
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.model_runner import LOGP_ONLY, TOP_ONLY
from serving.engine.runtime.session import open_graphs, with_device
from serving.engine.scheduling.admission import PromptAdmission, SharedParts, SourceAdmission
from serving.engine.scheduling.fair_queue import JobSize
from serving.engine.states.store import row_bytes
from serving.engine.stats import EngineStats, StepStats
from serving.errors import EngineError
from serving.requests.request import Event, GenerationRequest

logger = logging.getLogger(__name__)


class Engine:
    """Runs requests step by step. Every accepted request gets exactly one final event."""

    def __init__(
        self,
        bundle: Bundle,
        config: EngineConfig | None = None,
        graphs: Graphs | None = None,
        excluded_ids: Iterable[int] = (),
        shared: SharedParts | None = None,
        job_size: JobSize = JobSize.COMMON,
    ) -> None:
        """Load a bundle's graphs. Raises BundleError or DeviceError.

        graphs: replace the bundle's graphs, in tests.
        excluded_ids: tokens that are generated only for requests that name them.
        shared: the scheduler and cache that engines of one bundle share; each engine has its own
            thread.
        job_size: which jobs this engine serves.
        """
        self.manifest, self.job_size = bundle.manifest, job_size
        manifest = bundle.manifest
        self.config = config = with_device(config or EngineConfig(), manifest)
        self.step_stats = StepStats()
        graphs = graphs or open_graphs(bundle, config)
        self.lent_threads = graphs.lent_threads
        shared = shared or SharedParts.create(manifest, config, graphs)
        self.scheduler = shared.scheduler
        self._queue = self.scheduler.queue_for_engine(job_size, self._leave)
        slots = self.scheduler.slots
        self._batch = Batch(slots)
        self._search = Search(manifest, self._batch, excluded_ids)
        self._runner = make_runner(manifest, graphs, self._batch, config, self._search)
        row_observers = [*self._search.row_observers, *self._runner.row_observers]
        self._rows = Rows(self._batch, self._runner.states, row_observers)
        prefills_alone = self._runner.can_prefill and "encode" not in manifest.graphs
        admission = PromptAdmission if prefills_alone else SourceAdmission
        self._admission = admission(
            config,
            self._queue,
            shared.cache,
            self._batch,
            self._runner,
            self._rows,
            self._queue.fail,
        )
        self._row_bytes = row_bytes(manifest.states)

    def warm_up(self) -> None:
        """Allocate device memory and record CUDA graphs; call it on the engine's thread before the
        first request. Raises DeviceError or OutOfMemory.
        """
        if self.config.device == "cpu":
            return
        started = time.perf_counter()
        num_shapes = self._runner.warm_up()
        seconds = time.perf_counter() - started
        logger.info("%s: %d shapes recorded, %.1f s", self.manifest.name, num_shapes, seconds)

    @property
    def has_work(self) -> bool:
        return self._queue.has_work

    def stats(self) -> EngineStats:
        """Return the current load."""
        batch, size = self._batch, self._row_bytes
        rows = batch.num_rows
        kv_bytes = rows * size.fixed
        kv_bytes += int(batch.past_lengths[:rows].sum()) * size.per_target_token
        kv_bytes += int(batch.source_lengths[:rows].sum()) * size.per_source_token
        num_prefilling = len(self._admission.prefilling)
        num_waiting = self._queue.num_waiting + num_prefilling
        slots = batch.slots if self.job_size is JobSize.COMMON else rows
        return EngineStats(num_waiting, rows, slots, kv_bytes, num_prefilling)

    def submit(self, *requests: GenerationRequest) -> None:
        """Accept requests, all or none. Raises RequestError or Overloaded."""
        self.scheduler.add(self.scheduler.accept(requests, time.perf_counter()))

    def cancel(self, request_id: str) -> None:
        """Abort a request if it waits or belongs to this engine."""
        self._queue.cancel(request_id)

    def cancel_all(self) -> None:
        self._queue.cancel_all()

    def step(self) -> list[Event]:
        """Admit waiting requests, decode one token for every row, and return the events."""
        self.step_stats = StepStats()
        self.step_stats.num_expired = self._queue.expire(time.perf_counter())
        if not self._batch.num_rows:
            self._runner.abandon()  # what was launched ahead for rows that have left
        if not self._runner.has_launched:  # a row that joined now would have no scores in that run
            self._admission.admit(self.step_stats)
        if self._batch.num_rows:
            self._batch.num_steps += 1
            try:
                self._decode()
            except Exception as error:
                self._fail_batch(error)
        return self._queue.take_events()

    def _leave(self, generation: Generation) -> None:
        """Remove a generation from its prefill or from the batch."""
        if not self._admission.remove(generation):
            self._rows.remove_all(generation)

    def _decode(self) -> None:
        scores = self._run()
        failed = self._failed_generations(scores)
        decision = self._search.decide(scores)
        self._rows.apply(decision)
        self._report(decision, failed)
        if failed:
            for generation in failed:
                self._rows.remove_all(generation)
            self._queue.fail(failed, EngineError("the model's scores are not numbers (NaN)"))

    def _run(self) -> Scores:
        """Return the scores of the next tokens. If possible, launch the next run before the host
        reads the last one.
        """
        started, runner = time.perf_counter(), self._runner
        if not runner.has_launched:
            self._launch()
        if runner.can_launch_ahead and not self._admission.is_due:
            self._launch()
        scores = runner.receive()
        if scores.attention:
            store_prompt_step_attention(self._batch, scores)
        self.step_stats.num_rows = scores.num_rows
        self.step_stats.add_seconds("decode", started)
        return scores

    def _failed_generations(self, scores: Scores) -> list[Generation]:
        """Return the generations that have a row whose best score is NaN: NaN or infinity in its
        activations. Other rows do not depend on it.
        """
        is_nan = np.isnan(scores.top_logp[:, 0])
        if not is_nan.any():
            return []
        rows = np.flatnonzero(is_nan).tolist()
        return list(dict.fromkeys(self._batch.generations[row] for row in rows))

    def _launch(self) -> None:
        num_rows, needs_logp = self._batch.num_rows, self._search.needs_logp
        outputs = LOGP_ONLY if needs_logp else TOP_ONLY
        if self._batch.needs_attention[:num_rows].any():
            outputs = needed_outputs(self._batch, needs_logp)
        self._runner.launch(num_rows, outputs)

    def _report(self, decision: Decision, failed: list[Generation]) -> None:
        """Queue the events and endings of a step, but for those of generations that have failed."""
        events, ids = decision.events, {generation.request_id for generation in failed}
        self._queue.events += [event for event in events if event.request_id not in ids]
        self.step_stats.num_reorders = len(decision.copies)
        for ending in decision.endings:
            generation = ending.generation
            if generation in failed:
                continue
            num_steps = self._batch.num_steps - generation.entered_step
            event = generation.finished_event(ending, time.perf_counter(), num_steps)
            self._queue.end(generation, event)

    def _fail_batch(self, error: Exception) -> None:
        generations = list(dict.fromkeys(self._batch.generations))
        self._runner.abandon()
        self._rows.clear()
        self._queue.fail(generations, error)

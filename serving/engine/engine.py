"""The engine: continuous batching of generations over one bundle, on one thread, in token ids.

    submit -> admission (encode, prefill) -> batch -> step, step, ... -> final event

It knows states and graphs only as the manifest lists them, whatever the architecture, and no text.
`bridge.py` puts it on a thread of its own behind asyncio.
"""

import logging
import time
from collections.abc import Iterable

import numpy as np

from serving.bundle.opening import Bundle
from serving.engine.admission import Admission
from serving.engine.batch import Batch
from serving.engine.beam_search import BeamSearch
from serving.engine.beams import Beams
from serving.engine.config import EngineConfig
from serving.engine.exclusions import Exclusions
from serving.engine.generation import Generation, RequestRules
from serving.engine.measures import EngineStats, StepReport
from serving.engine.processing.endings import force_ends, rows_at_their_end
from serving.engine.processing.processors import Processors
from serving.engine.queues import Deadlines
from serving.engine.reporting import Decoded, Reporter
from serving.engine.rows import Follower, Rows
from serving.engine.runner import Graphs, Runner
from serving.engine.sampling import Sampling
from serving.engine.search import Choices, Scores
from serving.engine.session import open_graphs
from serving.engine.states import row_bytes
from serving.errors import EngineError, RequestError
from serving.request import Event, GenerationRequest

logger = logging.getLogger(__name__)


class Engine:
    """Every request that `submit` accepts gets exactly one final event from a later `step`."""

    def __init__(
        self,
        bundle: Bundle,
        config: EngineConfig | None = None,
        graphs: Graphs | None = None,
        excluded_ids: Iterable[int] = (),
    ) -> None:
        """`graphs` stands in for the bundle's own, in tests. excluded_ids: tokens that only those
        requests get that name them. Raises BundleError or DeviceError.
        """
        self.config = config or EngineConfig()
        self.manifest = manifest = bundle.manifest
        self.report = StepReport()
        slots = self.config.slots
        self._rules = RequestRules(manifest, slots)
        self._batch = Batch(slots)
        graphs = graphs or open_graphs(bundle, self.config)
        self._runner = Runner(manifest, graphs, self._batch, self.config)
        self._sampling = Sampling(slots, manifest.vocab_size, manifest.limits.max_target_tokens)
        self._exclusions = Exclusions(manifest, excluded_ids)
        self._processors = Processors(slots, manifest.vocab_size, self._exclusions)
        self._beams = Beams(slots)
        followers: list[Follower] = [self._sampling, self._processors, self._beams]
        if self._runner.shortlists is not None:
            followers.append(self._runner.shortlists)
        self._rows = Rows(self._batch, self._runner.states, tuple(followers))
        self._admission = Admission(self.config, self._batch, self._runner, self._rows, self._fail)
        self._reporter = Reporter(manifest, self._batch)
        self._beam_search = BeamSearch(self._batch, self._rows, self._beams, self._reporter)
        self._row_bytes = row_bytes(manifest.states)
        self._deadlines = Deadlines()
        self._open: dict[str, Generation] = {}
        self._events: list[Event] = []

    @property
    def has_work(self) -> bool:
        return bool(self._open or self._events)

    def stats(self) -> EngineStats:
        batch, size = self._batch, self._row_bytes
        rows = batch.num_rows
        kv_bytes = rows * size.fixed
        kv_bytes += int(batch.past_lengths[:rows].sum()) * size.per_target_token
        kv_bytes += int(batch.source_lengths[:rows].sum()) * size.per_source_token
        return EngineStats(self._admission.num_waiting, rows, batch.slots, kv_bytes)

    def submit(self, *requests: GenerationRequest) -> None:
        """Accept requests, all or none. Raises RequestError or Overloaded; then none has events."""
        now = time.perf_counter()
        accepted: dict[str, Generation] = {}
        for request in requests:
            if request.request_id in self._open or request.request_id in accepted:
                raise RequestError("request_id", request.request_id, "is in use")
            accepted[request.request_id] = self._rules.accept(request, now)
        self._admission.add(list(accepted.values()))
        self._open |= accepted
        for generation in accepted.values():
            self._deadlines.add(generation)

    def cancel(self, request_id: str) -> None:
        """End a request now; one that has ended already is left alone."""
        generation = self._open.get(request_id)
        if generation is None:
            return
        self._leave(generation)
        self._end(generation, generation.aborted())

    def cancel_all(self) -> None:
        for request_id in list(self._open):
            self.cancel(request_id)

    def step(self) -> list[Event]:
        """Let the waiting in, give every row one more token, and tell what happened."""
        self.report = StepReport()
        self._expire()
        self._admission.admit(self.report)
        if self._batch.num_rows:
            try:
                step = self._decode(self._run())
            except Exception as error:
                self._fail_batch(error)
            else:
                self._report(step)
        events, self._events = self._events, []
        return events

    def _expire(self) -> None:
        """End those whose time is up, wherever they are."""
        for generation in self._deadlines.take_expired(time.perf_counter()):
            self._leave(generation)
            self._end(generation, generation.expired())
            self.report.num_expired += 1

    def _leave(self, generation: Generation) -> None:
        """Out of the queue, of prefilling or of the batch."""
        if not self._admission.remove(generation):
            self._rows.remove_all(generation)

    def _run(self) -> Scores:
        started = time.perf_counter()
        rows = self._batch.num_rows
        wants_attention = bool(self._batch.needs_attention[:rows].any())
        scores = self._runner.step(rows, wants_attention)
        self.report.decoded(rows, started)
        return scores

    def _decode(self, scores: Scores) -> Decoded:
        """Decide every row's next token, and let the rows take it."""
        self._exclusions.apply(scores)
        self._edit(scores)
        choices = self._sampling.choose(scores, self._batch.num_generated[: scores.num_rows])
        self._take_known(choices, scores)
        decoded = self._reporter.report(choices, scores)
        token_ids = choices.token_ids
        if self._beams.groups:
            token_ids = self._beam_search.choose(scores, choices, decoded)
        if self._processors.is_active:
            self._processors.advance(token_ids, self._batch.num_known[: len(token_ids)] > 0)
        self._batch.advance(token_ids)
        return decoded

    def _edit(self, scores: Scores) -> None:
        ending_rows = rows_at_their_end(self._batch, scores.num_rows)
        if self._processors.is_active or len(ending_rows):
            self._processors.edit(scores, ending_rows)
        if len(ending_rows):
            assert scores.edited is not None
            force_ends(scores.edited, self._batch, ending_rows)

    def _take_known(self, choices: Choices, scores: Scores) -> None:
        """Rows whose next token is given in advance take it, whatever its score."""
        batch = self._batch
        rows = np.flatnonzero(batch.num_known[: scores.num_rows])
        for row in rows:
            choices.token_ids[row] = batch.generations[row].known_ids[batch.total_lengths[row]]
        if len(rows):
            choices.logprobs[rows] = scores.of_tokens(rows, choices.token_ids[rows])

    def _report(self, decoded: Decoded) -> None:
        """Tell what there is to tell; rows that nobody needs any more leave."""
        self._events += decoded.tokens
        self.report.num_reorders = decoded.num_copies
        for row in sorted(decoded.left_rows, reverse=True):  # no row moves before its turn
            self._rows.remove(row)
        for generation, event in decoded.ends:
            self._end(generation, event)

    def _fail_batch(self, error: Exception) -> None:
        generations = list(dict.fromkeys(self._batch.generations))
        self._rows.clear()
        self._fail(generations, error)

    def _fail(self, generations: list[Generation], error: Exception) -> None:
        """The requests have left the batch; the engine lives on."""
        logger.error("%d requests failed", len(generations), exc_info=error)
        for generation in generations:
            failure = EngineError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            self._end(generation, generation.failed(failure))

    def _end(self, generation: Generation, final_event: Event) -> None:
        del self._open[generation.request_id]
        self._deadlines.remove(generation)
        self._beams.leave(generation)
        self._events.append(final_event)

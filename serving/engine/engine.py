"""The engine: continuous batching of generations over one bundle, on one thread, in token ids.

    submit -> scheduler -> admit (encode, prefill) -> batch -> step, step, ... -> final event

It knows states and graphs only as the manifest lists them, whatever the architecture, and no text.
`bridge.py` puts it on a thread of its own behind asyncio.
"""

import logging
import time

import numpy as np

from serving.bundle.opening import Bundle
from serving.engine.batch import Batch
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation, RequestRules
from serving.engine.measures import EngineStats, StepReport
from serving.engine.memory import Array
from serving.engine.runner import Graphs, Runner
from serving.engine.sampling import Sampling
from serving.engine.scheduler import Scheduler, encode_groups, encode_span
from serving.engine.search import Choices, Scores, Search
from serving.engine.session import open_graphs
from serving.engine.states import Used, row_bytes
from serving.errors import EngineError, RequestError
from serving.request import Event, FinishReason, GenerationRequest, TokenEvent, TokenLogprob

logger = logging.getLogger(__name__)


class Engine:
    """Every request that `submit` accepts gets exactly one final event from a later `step`."""

    def __init__(
        self, bundle: Bundle, config: EngineConfig | None = None, graphs: Graphs | None = None
    ) -> None:
        """`graphs` stands in for the bundle's own, in tests. Raises BundleError or DeviceError."""
        self.config = config or EngineConfig()
        self.manifest = manifest = bundle.manifest
        self.report = StepReport()
        self._rules = RequestRules(manifest)
        self._scheduler = Scheduler(self.config)
        self._batch = Batch(self.config.slots)
        graphs = graphs or open_graphs(bundle, self.config)
        self._runner = Runner(manifest, graphs, self._batch, self.config)
        self._search: Search = Sampling(
            self.config.slots, manifest.vocab_size, manifest.limits.max_target_tokens
        )
        self._is_stop = np.zeros(manifest.vocab_size, bool)
        self._is_stop[list(manifest.tokens.stop)] = True
        self._row_bytes = row_bytes(manifest.states)
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
        return EngineStats(self._scheduler.num_waiting, rows, batch.slots, kv_bytes)

    def submit(self, *requests: GenerationRequest) -> None:
        """Accept requests, all or none. Raises RequestError or Overloaded; then none has events."""
        now = time.perf_counter()
        accepted: dict[str, Generation] = {}
        for request in requests:
            if request.request_id in self._open or request.request_id in accepted:
                raise RequestError("request_id", request.request_id, "is in use")
            accepted[request.request_id] = self._rules.accept(request, now)
        self._scheduler.add(list(accepted.values()), self._batch.num_free)
        self._open |= accepted

    def cancel(self, request_id: str) -> None:
        """End a request now; one that has ended already is left alone."""
        generation = self._open.get(request_id)
        if generation is None:
            return
        if not self._scheduler.remove(generation):
            self._remove(self._batch.generations.index(generation))
        self._end(generation.aborted())

    def cancel_all(self) -> None:
        for request_id in list(self._open):
            self.cancel(request_id)

    def step(self) -> list[Event]:
        """Let the waiting in, give every row one more token, and tell what happened."""
        self.report = StepReport()
        self._schedule()
        if self._batch.num_rows:
            try:
                scores = self._run()
                choices = self._choose(scores)
            except Exception as error:
                self._fail_batch(error)
            else:
                self._report(choices, scores)
        events, self._events = self._events, []
        return events

    def _schedule(self) -> None:
        for group in encode_groups(self._scheduler.admit(self._batch.num_free)):
            if self._encode(group):
                for generation in group:
                    self._search.admit(self._batch.add(generation), generation)
                for generation in group:
                    self._prefill(generation)

    def _encode(self, group: list[Generation]) -> bool:
        """Set the states of the rows behind the batch. Where that fails, the group's requests have
        failed.
        """
        started = time.perf_counter()
        first = self._batch.num_rows
        span = encode_span(group[0])
        in_use = int(self._batch.source_lengths[:first].max(initial=0))
        try:
            self._runner.states.fit_span(max(in_use, span), first)
            self._runner.encode(first, [each.request.source_ids for each in group], span)
        except Exception as error:
            self._fail(group, error)
            return False
        self.report.encoded(group, span, started)
        return True

    def _prefill(self, generation: Generation) -> None:
        """Bring all but the last token of a prompt into a new row's states."""
        if len(generation.prompt_ids) == 1:
            return
        started = time.perf_counter()
        row = self._batch.generations.index(generation)
        try:
            self._runner.prefill(row, generation.prompt_ids[:-1])
        except Exception as error:
            self._remove(row)
            self._fail([generation], error)
        self.report.prefilled(generation, started)

    def _run(self) -> Scores:
        started = time.perf_counter()
        scores = self._runner.step(self._batch.num_rows)
        self.report.decoded(self._batch.num_rows, started)
        return scores

    def _choose(self, scores: Scores) -> Choices:
        return self._search.choose(scores)

    def _report(self, choices: Choices, scores: Scores) -> None:
        """Token events for the rows that go on, final events for those that end, which leave the
        batch.
        """
        batch, token_ids = self._batch, choices.token_ids
        batch.advance(token_ids)
        stopped = self._is_stop[token_ids]
        self._add_token_events(choices, scores, stopped)
        ended = stopped | (batch.tokens_left[: len(token_ids)] == 0)
        for row in np.flatnonzero(ended)[
            ::-1
        ]:  # from the last, so that no row moves before its turn
            generation = batch.generations[row]
            reason = FinishReason.STOP if stopped[row] else FinishReason.LENGTH
            num_generated = generation.max_new_tokens - int(batch.tokens_left[row])
            self._remove(row)
            self._end(generation.finished(reason, num_generated))

    def _add_token_events(self, choices: Choices, scores: Scores, stopped: Array) -> None:
        add = self._events.append
        columns = choices.token_ids.tolist(), choices.logprobs.tolist(), stopped.tolist()
        for row, (generation, token_id, logprob, is_stop) in enumerate(
            zip(self._batch.generations, *columns, strict=True)
        ):
            if is_stop:
                continue
            request = generation.request
            top = _top(scores, row, request.logprobs) if request.logprobs else ()
            add(TokenEvent(request.request_id, token_id, logprob, top))

    def _remove(self, row: int) -> None:
        """Take a row out of the batch; the last row moves into the hole."""
        last = self._batch.remove(row)
        if last is not None:
            self._search.move(last, row)
            batch = self._batch
            used = Used(int(batch.past_lengths[row]), int(batch.source_lengths[row]))
            self._runner.states.move(last, row, used)

    def _fail_batch(self, error: Exception) -> None:
        generations = list(self._batch.generations)
        self._batch.generations.clear()
        self._fail(generations, error)

    def _fail(self, generations: list[Generation], error: Exception) -> None:
        """The requests have left the batch; the engine lives on."""
        logger.error("%d requests failed", len(generations), exc_info=error)
        for generation in generations:
            failure = EngineError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            self._end(generation.failed(failure))

    def _end(self, final_event: Event) -> None:
        del self._open[final_event.request_id]
        self._events.append(final_event)


def _top(scores: Scores, row: int, count: int) -> tuple[TokenLogprob, ...]:
    ids, logprobs = scores.top_ids[row, :count].tolist(), scores.top_logp[row, :count].tolist()
    return tuple(map(TokenLogprob, ids, logprobs))

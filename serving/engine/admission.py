"""How waiting generations come into the batch: sources are encoded, prompts prefilled."""

import time
from collections.abc import Callable

from serving.engine.batch import Batch
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.measures import StepReport
from serving.engine.rows import Rows
from serving.engine.runner import Runner
from serving.engine.scheduler import Scheduler, encode_groups, encode_span

Fail = Callable[[list[Generation], Exception], None]


class Admission:
    def __init__(
        self, config: EngineConfig, batch: Batch, runner: Runner, rows: Rows, fail: Fail
    ) -> None:
        """`fail` is told of generations that cannot come in, and why."""
        self._scheduler = Scheduler(config)
        self._batch, self._runner, self._rows, self._fail = batch, runner, rows, fail
        self._report = StepReport()

    @property
    def num_waiting(self) -> int:
        return self._scheduler.num_waiting

    def add(self, generations: list[Generation]) -> None:
        """All or none. Raises Overloaded."""
        self._scheduler.add(generations, self._batch.num_free)

    def remove(self, generation: Generation) -> bool:
        """Whether it was not in the batch yet."""
        return self._scheduler.remove(generation)

    def admit(self, report: StepReport) -> None:
        """Bring in those whose turn it is, before the next decoding run."""
        self._report = report
        for group in encode_groups(self._scheduler.admit(self._batch.num_free)):
            if self._encode(group):
                for generation in group:
                    self._rows.add(generation, self._num_prefilled(generation))
                for generation in group:
                    self._prefill(generation)

    def _num_prefilled(self, generation: Generation) -> int:
        return len(generation.prompt_ids) - 1 if self._runner.can_prefill else 0

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
        self._report.encoded(group, span, started)
        return True

    def _prefill(self, generation: Generation) -> None:
        """Bring all but the last token of a prompt into a new row's states."""
        num_tokens = self._num_prefilled(generation)
        if not num_tokens:
            return
        started = time.perf_counter()
        row = self._batch.generations.index(generation)
        try:
            self._runner.prefill(row, generation.prompt_ids[:num_tokens])
        except Exception as error:
            self._rows.remove_all(generation)
            self._fail([generation], error)
        self._report.prefilled(generation, started)

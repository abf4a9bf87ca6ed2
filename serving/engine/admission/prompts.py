"""Brings prompts in: prefilled in chunks beside the rows that decode, then moved behind them.

A prompt in progress has a staging row, in the state store behind the slots, and the slots it will
need are reserved. Chunks lie on a fixed grid from position 0, so what a prompt computes depends on
its tokens alone: not on load, budgets or what the cache holds.
"""

import time
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import AttentionKind
from serving.engine.admission.intake import Intake, Surroundings
from serving.engine.attention.looking import note_prompt
from serving.engine.generation import Generation
from serving.engine.measures import StepStats
from serving.engine.states.kind import RowExtent, RowPart


@dataclass(slots=True, eq=False)
class Staged:
    """Holds a prompt in progress.

    row: its staging row. token_ids: i64, what is prefilled: all of the prompt but its last token.
    num_done: how many of them the row's states hold. place: where the current buffers were then.
    """

    generation: Generation
    row: int
    token_ids: Array
    num_done: int
    place: tuple[Hashable, ...]

    @property
    def is_done(self) -> bool:
        return self.num_done == len(self.token_ids)

    def next_positions(self, chunk: int) -> slice:
        return slice(self.num_done, min(self.num_done + chunk, len(self.token_ids)))


class PromptIntake(Intake):
    """Serves graphs that take many tokens at once and know no source."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        config = around.config
        self._chunk, self._max_step_tokens = config.prefill_chunk, config.max_step_tokens
        self._staged: list[Staged] = []  # the most urgent first
        self._free_rows = list(around.runner.staging_rows)

    @property
    def underway(self) -> list[Generation]:
        return [staged.generation for staged in self._staged]

    @property
    def is_due(self) -> bool:
        first = self._seat.first
        return bool(self._staged) or (first is not None and self._overtakes(first))

    def remove(self, generation: Generation) -> bool:
        for staged in self._staged:
            if staged.generation is generation:
                self._unstage(staged)
                return True
        return False

    def admit(self, step_stats: StepStats) -> None:
        """Prefill what the step's budget leaves beside the rows that decode, but at least one
        chunk. What the cache holds costs nothing.
        """
        num_left = self._max_step_tokens - self._batch.num_rows
        has_run = False
        while (staged := self._most_urgent(step_stats)) is not None:
            self._restore(staged, step_stats)
            if staged.is_done:
                self._enter(staged)
                num_left -= 1
                continue
            positions = staged.next_positions(self._chunk)
            num_left -= positions.stop - positions.start
            if has_run and num_left < 0:
                break
            self._run(staged, positions, step_stats)
            has_run = True

    def _most_urgent(self, step_stats: StepStats) -> Staged | None:
        """Return who is next. A more urgent newcomer goes first while it finds a staging row."""
        first = self._seat.first
        if first is not None and self._free_rows and self._overtakes(first):
            self._stage(first, step_stats)
        return self._staged[0] if self._staged else None

    def _overtakes(self, first: Generation) -> bool:
        if self._staged and first.request.priority >= self._staged[0].generation.request.priority:
            return False
        num_claimed = sum(each.request.num_rows for each in self.underway)
        return first.request.num_rows <= self._batch.num_free - num_claimed

    def _stage(self, generation: Generation, step_stats: StepStats) -> None:
        if not self._seat.take(generation):
            return
        step_stats.joined([generation], time.perf_counter())
        row = self._free_rows.pop()
        self._states.admit(row, 1, span=0)
        token_ids = np.array(generation.prompt_ids[:-1], np.int64)
        self._staged.insert(0, Staged(generation, row, token_ids, 0, self._states.place))

    def _unstage(self, staged: Staged) -> None:
        self._staged.remove(staged)
        self._free_rows.append(staged.row)

    def _restore(self, staged: Staged, step_stats: StepStats) -> None:
        """Take all next chunks that the cache holds."""
        self._settle(staged)
        if staged.generation.looks_at(AttentionKind.DECODER):
            return  # what is kept does not say what it looked at
        while self._cache.is_on and not staged.is_done:
            positions = staged.next_positions(self._chunk)
            kept = self._cache.get(staged.token_ids[: positions.stop])
            if kept is None:
                break
            self._states.restore(staged.row, RowPart(positions, 0), kept)
            staged.num_done = positions.stop
            step_stats.num_prefix_hits += positions.stop - positions.start

    def _run(self, staged: Staged, positions: slice, step_stats: StepStats) -> None:
        started = time.perf_counter()
        try:
            self._prefill(staged, positions)
        except Exception as error:
            self._unstage(staged)
            self._fail([staged.generation], error)
            return
        staged.num_done = positions.stop
        if self._cache.is_on:
            parts = self._states.parts(staged.row, RowPart(positions, 0))
            self._cache.put(staged.token_ids[: positions.stop], parts)
            step_stats.num_prefix_misses += positions.stop - positions.start
        step_stats.prefilled(positions.stop - positions.start, started)

    def _prefill(self, staged: Staged, positions: slice) -> None:
        where = staged.row, positions.start, staged.token_ids[positions]
        if not staged.generation.looks_at(AttentionKind.DECODER):
            self._runner.prefill(*where)
            return
        told = self._runner.prefill_telling(*where)
        note_prompt(staged.generation, told, positions.stop)

    def _enter(self, staged: Staged) -> None:
        num_tokens = len(staged.token_ids)
        extent = RowExtent(num_tokens, source_tokens=0)
        self._states.move(staged.row, self._batch.num_rows, extent)
        self._unstage(staged)
        self._rows.add(staged.generation, num_tokens)

    def _settle(self, staged: Staged) -> None:
        """Follow the batch, which may have taken steps since."""
        self._states.catch_up(staged.row, staged.place)
        staged.place = self._states.place

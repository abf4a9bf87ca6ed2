"""The rows of a batch: the inputs of the step graph for each row, and how rows are added, moved and
removed.

Rows are the prefix [0, num_rows); when a row is removed, the last row takes its place. The arrays
of the batch are bound to the step graph, so writing to them sets the inputs of the next run. The
state store contains the tensors of the rows; row observers (samplers, searches, processors) contain
everything else per row.

A step's `Decision` is a value: `Search.decide` computes it from the scores without side effects,
and `Rows.apply` applies it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from serving.engine.arrays import Array
from serving.engine.generation import Ending, Generation
from serving.engine.states.kind import RowExtent
from serving.engine.states.store import StateStore
from serving.requests.request import AttentionWeights, TokenEvent


@dataclass(frozen=True, slots=True)
class RowCopy:
    """A copy of row `source` to row `target`; both continue.

    target: a row of the same generation, or the row after the last one.
    num_shared: number of first positions in which their states are equal already.
    """

    source: int
    target: int
    num_shared: int = 0


class SearchState(Protocol):
    """The state of a search over several rows. Only that search reads it."""

    @property
    def generation(self) -> Generation: ...


@dataclass(slots=True)
class Decision:
    """All decisions of one step.

    token_ids: i64 [rows], the next token of each row, in the order of rows after the copies.
    is_forced: bool [rows], whether the token was given in advance.
    copies: in the order in which new rows are numbered.
    reported_rows: rows without a search over several rows whose token is reported, in order.
    alignments: of reported tokens, by row.
    token_outputs: reported tokens of which the request asks more than id and alignment, by row.
    searches: the new states of searches over several rows that took a step.
    scored_logprobs: of the `scored_ids` of requests whose prompt ends with this step, by row.
    events: tokens to send now, in order.
    finished_rows: rows to remove.
    """

    token_ids: Array
    is_forced: Array
    copies: list[RowCopy] = field(default_factory=list)
    reported_rows: list[int] = field(default_factory=list)
    alignments: dict[int, AttentionWeights] = field(default_factory=dict)
    token_outputs: dict[int, TokenEvent] = field(default_factory=dict)
    searches: list[SearchState] = field(default_factory=list)
    scored_logprobs: dict[int, tuple[float, ...]] = field(default_factory=dict)
    events: list[TokenEvent] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    finished_rows: list[int] = field(default_factory=list)


class RowObserver:
    """Keeps data for each row. Subclasses override the methods that they need."""

    def on_add(self, row: int, generation: Generation) -> None:
        """Begin to keep data for the new row of a generation."""

    def on_copy(self, source: int, target: int) -> None:
        """Copy the data of row `source` to row `target`; both continue."""

    def on_move(self, source: int, target: int) -> None:
        """Rename row `source` to `target`; `target` was removed before."""

    def on_remove(self, row: int) -> None:
        """Delete the data of a removed row."""

    def on_step(self, decision: Decision) -> None:
        """Add the new token of each row, after the decision's copies."""


class Batch:
    """The rows of a batch: one for each generation, or one for each live beam.

    num_forced: number of a row's next tokens that are given in advance.
    num_generated: number of its tokens that were generated.
    max_generated: maximum number of generated tokens.
    num_ahead: number of tokens that the graph has run for each row but the row has not taken yet.
    num_steps: number of runs whose tokens rows have taken.
    ends_loops: whether the row ends when its tokens loop.
    awaits_scored: whether its request's `scored_ids` have not been scored yet.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.num_ahead = self.num_steps = 0
        self.generations: list[Generation] = []
        self.ids = np.zeros((slots, 1), np.int64)
        self.past_lengths = np.zeros(slots, np.int32)
        self.total_lengths = np.ones(slots, np.int32)
        self.source_lengths = np.ones(slots, np.int32)
        self.num_forced = np.zeros(slots, np.int64)
        self.num_generated = np.zeros(slots, np.int64)
        self.max_generated = np.zeros(slots, np.int64)
        self.is_beam = np.zeros(slots, bool)
        self.has_own_stops = np.zeros(slots, bool)
        self.needs_attention = np.zeros(slots, bool)
        self.needs_logp = np.zeros(slots, bool)
        self.returns_logprobs = np.zeros(slots, bool)
        self.needs_token_outputs = np.zeros(slots, bool)
        self.ends_loops = np.zeros(slots, bool)
        self.awaits_scored = np.zeros(slots, bool)
        self._columns: tuple[Array, ...] = (
            self.ids,
            self.past_lengths,
            self.total_lengths,
            self.source_lengths,
            self.num_forced,
            self.num_generated,
            self.max_generated,
            self.is_beam,
            self.has_own_stops,
            self.needs_attention,
            self.needs_logp,
            self.returns_logprobs,
            self.needs_token_outputs,
            self.ends_loops,
            self.awaits_scored,
        )

    @property
    def num_rows(self) -> int:
        return len(self.generations)

    @property
    def num_free(self) -> int:
        """Return the number of unreserved slots: a beam search reserves all of its rows at the
        start.
        """
        generations = set(self.generations)
        return self.slots - sum(generation.request.num_rows for generation in generations)

    def add(self, generation: Generation, num_prefilled: int) -> int:
        """Add a row for a generation. num_prefilled: given tokens that its states contain
        already.
        """
        row = self.num_rows
        generation.entered_at, generation.entered_step = time.perf_counter(), self.num_steps
        self.ids[row, 0] = generation.prefix_ids[num_prefilled]
        self.past_lengths[row] = num_prefilled
        self.total_lengths[row] = num_prefilled + 1
        self.source_lengths[row] = max(generation.num_source_tokens, 1)
        self.num_forced[row] = len(generation.prefix_ids) - num_prefilled - 1
        self.num_generated[row] = 0
        self.max_generated[row] = generation.max_new_tokens
        self.is_beam[row] = generation.request.beam is not None
        self.has_own_stops[row] = generation.has_own_stops
        self.needs_attention[row] = bool(generation.step_attention)
        self.needs_logp[row] = generation.needs_logp
        self.returns_logprobs[row] = generation.returns_logprobs
        self.needs_token_outputs[row] = generation.needs_token_outputs
        self.ends_loops[row] = generation.ends_loops
        self.awaits_scored[row] = bool(generation.request.scored_ids)
        self.generations.append(generation)
        return row

    def fork(self, parent: int) -> int:
        """Add a row for the generation of `parent`, at the same position."""
        row = self.num_rows
        self.generations.append(self.generations[parent])
        for column in self._columns:
            column[row] = column[parent]
        return row

    def remove(self, row: int) -> int | None:
        """Remove a row. Returns the row that must be moved into its place, if any."""
        last = self.num_rows - 1
        last_generation = self.generations.pop()
        if row == last:
            return None
        self.generations[row] = last_generation
        for column in self._columns:
            column[row] = column[last]
        return last

    def pad(self, num_rows: int) -> None:
        """Set free rows, up to `num_rows` in all, to the first position, so that a graph that also
        runs over them writes nothing that is read.
        """
        free = slice(self.num_rows, num_rows)
        self.ids[free] = self.past_lengths[free] = 0
        self.total_lengths[free] = self.source_lengths[free] = 1

    def advance(self, token_ids: Array) -> None:
        """Append a token to every row, and count down its given tokens."""
        rows = len(token_ids)
        self.num_ahead -= 1
        is_forced = self.num_forced[:rows] > 0
        self.ids[:rows, 0] = token_ids
        self.past_lengths[:rows] += 1
        self.total_lengths[:rows] += 1
        self.num_generated[:rows] += ~is_forced
        self.num_forced[:rows] -= is_forced


class Rows:
    """Adds, changes and removes rows: the only place where the batch, its states and its observers
    change.
    """

    def __init__(
        self, batch: Batch, states: StateStore, row_observers: Sequence[RowObserver]
    ) -> None:
        self._batch, self._states, self._row_observers = batch, states, row_observers

    def add(self, generation: Generation, num_prefilled: int) -> int:
        """Add a row whose states are already stored behind those of the last row."""
        row = self._batch.add(generation, num_prefilled)
        for observer in self._row_observers:
            observer.on_add(row, generation)
        return row

    def apply(self, decision: Decision) -> None:
        """Apply the decision of a step, after the run that produced its scores."""
        self._append_tokens(decision)
        for row, logprobs in decision.scored_logprobs.items():
            self._batch.generations[row].scored_logprobs = logprobs
            self._batch.awaits_scored[row] = False
        for copy in decision.copies:
            self._copy(copy)
        for observer in self._row_observers:
            observer.on_step(decision)
        self._batch.advance(decision.token_ids)
        # From the last, so that a row is removed before it could be moved.
        for row in sorted(decision.finished_rows, reverse=True):
            self.remove(row)

    def _append_tokens(self, decision: Decision) -> None:
        """Append the reported tokens to their generations."""
        rows = decision.reported_rows
        for row, token_id in zip(rows, decision.token_ids[rows].tolist(), strict=True):
            if row not in decision.token_outputs:
                self._batch.generations[row].tokens.ids.append(token_id)
        for row, alignment in decision.alignments.items():
            self._batch.generations[row].tokens.alignments.append(alignment)
        for row, event in decision.token_outputs.items():
            self._batch.generations[row].tokens.add(event)

    def remove(self, row: int) -> None:
        """Remove a row; the last row takes its place."""
        last = self._batch.remove(row)
        for observer in self._row_observers:
            observer.on_remove(row)
        if last is not None:
            for observer in self._row_observers:
                observer.on_move(last, row)
            self._states.copy_row(last, row, self._extent(row))

    def remove_all(self, generation: Generation) -> None:
        """Remove all rows of a generation, from the last one, so that each is removed before it
        could be moved.
        """
        for row in range(self._batch.num_rows - 1, -1, -1):
            if self._batch.generations[row] is generation:
                self.remove(row)

    def clear(self) -> None:
        """Remove all rows."""
        for row in range(self._batch.num_rows):
            for observer in self._row_observers:
                observer.on_remove(row)
        self._batch.generations.clear()

    def _copy(self, copy: RowCopy) -> None:
        extent = self._extent(copy.source)
        if copy.target == self._batch.num_rows:
            self._batch.fork(copy.source)
            self._states.copy_row(copy.source, copy.target, extent)
        else:
            self._states.copy_suffix(copy.source, copy.target, copy.num_shared, extent)
        for observer in self._row_observers:
            observer.on_copy(copy.source, copy.target)

    def _extent(self, row: int) -> RowExtent:
        """Return the extent of a row's states that its next step reads."""
        batch = self._batch
        num_tokens = int(batch.past_lengths[row]) + batch.num_ahead
        return RowExtent(num_tokens, int(batch.source_lengths[row]))

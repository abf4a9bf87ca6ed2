"""The rows of a batch: what the step graph reads for each, and how rows come, move and leave.

Rows are the prefix [0, num_rows); a row that leaves is replaced by the last one. The arrays of the
batch are bound to the step graph in place: writing to them is feeding the graph. The state store
holds the tensors of the rows, and followers (samplers, searches, processors) what else they need.

A step's `Decision` is a value: `Search.decide` makes it from the scores and changes nothing, and
`Rows.apply` carries it out.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from serving.arrays import Array
from serving.engine.generation import Generation
from serving.engine.states.kind import RowExtent
from serving.engine.states.store import StateStore
from serving.request import FinishedEvent, TokenEvent


@dataclass(frozen=True, slots=True)
class RowCopy:
    """Says that row `target` is to stand where row `source` stands after the step; both go on.

    target: a row of the same generation, or the row behind the last one.
    num_shared: how many first positions of their states are equal already.
    """

    source: int
    target: int
    num_shared: int = 0


class SearchState(Protocol):
    """Holds what a search over several rows remembers. Only that search looks inside."""

    @property
    def generation(self) -> Generation: ...


@dataclass(slots=True)
class Decision:
    """Holds everything that one step decides.

    token_ids: i64 [rows], every row's next token, in the order of rows after the copies.
    is_given: bool [rows], whose token was given in advance.
    is_next: bool [rows], who takes a token; nothing changes of the others.
    copies: in the order in which new rows are numbered.
    searches: the searches over several rows that took a step, as they go on.
    events: tokens to report, in order.
    endings: generations that end, after those tokens.
    finished_rows: rows that nobody needs any more.
    """

    token_ids: Array
    is_given: Array
    is_next: Array
    copies: list[RowCopy] = field(default_factory=list)
    searches: list[SearchState] = field(default_factory=list)
    events: list[TokenEvent] = field(default_factory=list)
    endings: list[tuple[Generation, FinishedEvent]] = field(default_factory=list)
    finished_rows: list[int] = field(default_factory=list)


class Follower:
    """Remembers something for each row. What it has no use for does nothing here."""

    def admit(self, row: int, generation: Generation) -> None:
        """Begin to follow the new row of a generation."""

    def copy(self, source: int, target: int) -> None:
        """Let row `target` stand where `source` stands; both live on."""

    def move(self, source: int, target: int) -> None:
        """Call row `source` from now on `target`, a row that was forgotten."""

    def forget(self, row: int) -> None:
        """Forget a row that leaves."""

    def advance(self, decision: Decision) -> None:
        """Let every row take its token; the decision's copies have been made."""


class Batch:
    """Gives a generation one row, or one for each of its live beams.

    num_given: how many of a row's next tokens are given in advance. num_generated: how many of its
    tokens were not. max_generated: how many may be. num_ahead: how many tokens every row has been
    run for that it may not have taken yet. num_steps: how many runs rows have taken tokens of.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.num_ahead = self.num_steps = 0
        self.generations: list[Generation] = []
        self.ids = np.zeros((slots, 1), np.int64)
        self.past_lengths = np.zeros(slots, np.int32)
        self.total_lengths = np.ones(slots, np.int32)
        self.source_lengths = np.ones(slots, np.int32)
        self.num_given = np.zeros(slots, np.int64)
        self.num_generated = np.zeros(slots, np.int64)
        self.max_generated = np.zeros(slots, np.int64)
        self.is_beam = np.zeros(slots, bool)
        self.has_own_stops = np.zeros(slots, bool)
        self.needs_attention = np.zeros(slots, bool)
        self.needs_logp = np.zeros(slots, bool)
        self.tells_logprobs = np.zeros(slots, bool)
        self._columns: tuple[Array, ...] = (
            self.ids,
            self.past_lengths,
            self.total_lengths,
            self.source_lengths,
            self.num_given,
            self.num_generated,
            self.max_generated,
            self.is_beam,
            self.has_own_stops,
            self.needs_attention,
            self.needs_logp,
            self.tells_logprobs,
        )

    @property
    def num_rows(self) -> int:
        return len(self.generations)

    @property
    def num_free(self) -> int:
        """Count the slots that no generation has or may claim: a beam search has all of its rows'
        from the start.
        """
        return self.slots - sum(each.request.num_rows for each in set(self.generations))

    def add(self, generation: Generation, num_prefilled: int) -> int:
        """Give a generation the next row, whose states hold so many of its given tokens."""
        row = self.num_rows
        generation.entered_at, generation.entered_step = time.perf_counter(), self.num_steps
        self.ids[row, 0] = generation.given_ids[num_prefilled]
        self.past_lengths[row] = num_prefilled
        self.total_lengths[row] = num_prefilled + 1
        self.source_lengths[row] = max(generation.num_source_tokens, 1)
        self.num_given[row] = len(generation.given_ids) - num_prefilled - 1
        self.num_generated[row] = 0
        self.max_generated[row] = generation.max_new_tokens
        self.is_beam[row] = generation.request.beam is not None
        self.has_own_stops[row] = generation.has_own_stops
        self.needs_attention[row] = bool(generation.step_attention)
        self.needs_logp[row] = generation.needs_logp
        self.tells_logprobs[row] = generation.tells_logprobs
        self.generations.append(generation)
        return row

    def fork(self, parent: int) -> int:
        """Give the generation of a row one more, which stands where that one stands."""
        row = self.num_rows
        self.generations.append(self.generations[parent])
        for column in self._columns:
            column[row] = column[parent]
        return row

    def remove(self, row: int) -> int | None:
        """Take a row out. Returns the row that has to be moved into its place, if any."""
        last = self.num_rows - 1
        moved = self.generations.pop()
        if row == last:
            return None
        self.generations[row] = moved
        for column in self._columns:
            column[row] = column[last]
        return last

    def pad(self, num_rows: int) -> None:
        """Let free rows, up to so many in all, read one token at the beginning: a graph that runs
        over them too writes nothing that is read.
        """
        free = slice(self.num_rows, num_rows)
        self.ids[free] = self.past_lengths[free] = 0
        self.total_lengths[free] = self.source_lengths[free] = 1

    def advance(self, token_ids: Array, is_next: Array) -> None:
        """Give rows one more token, those that are `is_next`, bool [rows]; if they had given ones
        they have one of them less.
        """
        rows = len(token_ids)
        self.num_ahead -= 1
        is_given = (self.num_given[:rows] > 0) & is_next
        np.copyto(self.ids[:rows, 0], token_ids, where=is_next)
        self.past_lengths[:rows] += is_next
        self.total_lengths[:rows] += is_next
        self.num_generated[:rows] += is_next & ~is_given
        self.num_given[:rows] -= is_given


class Rows:
    def __init__(self, batch: Batch, states: StateStore, followers: Sequence[Follower]) -> None:
        self._batch, self._states, self._followers = batch, states, followers

    def add(self, generation: Generation, num_prefilled: int) -> int:
        """Add a row whose states, behind those of the last row, are the generation's already."""
        row = self._batch.add(generation, num_prefilled)
        for follower in self._followers:
            follower.admit(row, generation)
        return row

    def apply(self, decision: Decision) -> None:
        """Carry out a step's decision, after the run whose scores it was made of."""
        for each in decision.copies:
            self._copy(each)
        for follower in self._followers:
            follower.advance(decision)
        self._batch.advance(decision.token_ids, decision.is_next)
        for row in sorted(decision.finished_rows, reverse=True):  # no row moves before its turn
            self.remove(row)

    def remove(self, row: int) -> None:
        """Take a row out of the batch; the last row moves into the hole."""
        last = self._batch.remove(row)
        for follower in self._followers:
            follower.forget(row)
        if last is not None:
            for follower in self._followers:
                follower.move(last, row)
            self._states.move(last, row, self._extent(row))

    def remove_all(self, generation: Generation) -> None:
        rows = [row for row, each in enumerate(self._batch.generations) if each is generation]
        for row in reversed(rows):  # from the last, so that no row moves before its turn
            self.remove(row)

    def clear(self) -> None:
        """Take out all rows, whatever state they are in."""
        for row in range(self._batch.num_rows):
            for follower in self._followers:
                follower.forget(row)
        self._batch.generations.clear()

    def _copy(self, copy: RowCopy) -> None:
        extent = self._extent(copy.source)
        if copy.target == self._batch.num_rows:
            self._batch.fork(copy.source)
            self._states.move(copy.source, copy.target, extent)
        else:
            self._states.move_suffix(copy.source, copy.target, copy.num_shared, extent)
        for follower in self._followers:
            follower.copy(copy.source, copy.target)

    def _extent(self, row: int) -> RowExtent:
        """Tell how much of a row's states its next step will read."""
        batch = self._batch
        num_tokens = int(batch.past_lengths[row]) + batch.num_ahead
        return RowExtent(num_tokens, int(batch.source_lengths[row]))

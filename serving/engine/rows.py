"""Adds, copies, moves and removes rows, with all that is kept for them: it is done here alone.

The batch says which rows there are, the state store holds their tensors, and followers (samplers,
searches, processors) what they remember per row.
"""

from collections.abc import Sequence

from serving.engine.batch import Batch
from serving.engine.decision import Decision, RowCopy
from serving.engine.generation import Generation
from serving.engine.states.kind import RowExtent
from serving.engine.states.store import StateStore


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

"""Rows and all that is kept for them: whoever adds, copies, moves or removes a row does it here.

The batch says which rows there are, the state store holds their tensors, and followers (searches,
processors) what they remember per row.
"""

from typing import Protocol

from serving.engine.batch import Batch
from serving.engine.generation import Generation
from serving.engine.states.store import StateStore, Used


class Follower(Protocol):
    def admit(self, row: int, generation: Generation) -> None:
        """A generation has a new row."""

    def copy(self, source: int, target: int) -> None:
        """Row `target` now stands where `source` stands; both live on."""

    def move(self, source: int, target: int) -> None:
        """Row `source` is now `target`, whose own content has left; `source` is forgotten next."""

    def forget(self, row: int) -> None:
        """There is no such row any more."""


class Rows:
    def __init__(self, batch: Batch, states: StateStore, followers: tuple[Follower, ...]) -> None:
        self._batch, self._states, self._followers = batch, states, followers

    def add(self, generation: Generation, num_prefilled: int) -> int:
        """The states of the row behind the last one are the generation's already."""
        row = self._batch.add(generation, num_prefilled)
        for follower in self._followers:
            follower.admit(row, generation)
        return row

    def fork(self, parent: int) -> int:
        """A new row that stands where `parent` stands, after the step it has just taken."""
        row = self._batch.fork(parent)
        self._states.move(parent, row, self._used(parent))
        for follower in self._followers:
            follower.copy(parent, row)
        return row

    def overwrite(self, source: int, target: int, num_shared: int) -> None:
        """Let a row stand where another row of its generation stands.

        num_shared: how many positions both have in common, as they have the same first tokens.
        """
        self._states.move_suffix(source, target, num_shared, self._used(source))
        for follower in self._followers:
            follower.copy(source, target)

    def remove(self, row: int) -> None:
        """Take a row out of the batch; the last row moves into the hole."""
        last = self._batch.remove(row)
        if last is not None:
            for follower in self._followers:
                follower.move(last, row)
            self._states.move(last, row, self._used_before(row))
        for follower in self._followers:
            follower.forget(row if last is None else last)

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

    def _used(self, row: int) -> Used:
        """What a row holds after a step, before the batch advances."""
        used = self._used_before(row)
        return Used(used.target_tokens + 1, used.source_tokens)

    def _used_before(self, row: int) -> Used:
        batch = self._batch
        return Used(int(batch.past_lengths[row]), int(batch.source_lengths[row]))

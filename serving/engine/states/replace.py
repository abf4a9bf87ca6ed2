"""Holds states that every token overwrites: an RNN's hidden vector."""

from collections.abc import Hashable

from serving.arrays import Array
from serving.engine.states.kind import NEXT, Stack, States


class UpdateStates(States):
    """Keeps one buffer: the step graph has read a state before it writes it. States that the
    encoder does not set begin at zero.
    """

    def __init__(self, stack: Stack, slots: int, is_encoded: bool) -> None:
        shape = [int(size) for size in stack.shape]
        super().__init__(stack, stack.zeros(slots, *shape))
        self._scratch = stack.zeros(slots, *shape) if is_encoded else None

    def written(self, first: int, last: int) -> dict[str, Array]:
        return self._stack.named(self._current[:, first:last], NEXT)

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return {} if self._scratch is None else self._stack.named(self._scratch[:, :num_rows])

    def admit(self, first: int, num_rows: int, span: int) -> None:
        rows = self._current[:, first : first + num_rows]
        if self._scratch is None:
            self._memory.clear(rows)
        else:
            self._memory.copy(rows, self._scratch[:, :num_rows])


class ReplaceStates(UpdateStates):
    """Keeps two buffers, one read and one written, which change places after every step."""

    def __init__(self, stack: Stack, slots: int, is_encoded: bool) -> None:
        super().__init__(stack, slots, is_encoded)
        self._next = stack.zeros(*self._current.shape[1:])
        self._is_flipped = False

    @property
    def place(self) -> Hashable:
        return self._is_flipped

    @property
    def places(self) -> tuple[Hashable, ...]:
        return False, True

    def go_to(self, place: Hashable) -> None:
        if place != self.place:
            self.flip()

    def written(self, first: int, last: int) -> dict[str, Array]:
        return self._stack.named(self._next[:, first:last], NEXT)

    def flip(self) -> None:
        self._current, self._next = self._next, self._current
        self._is_flipped = not self._is_flipped

    def settle(self, row: int) -> None:
        self._memory.copy(self._current[:, row], self._next[:, row])

    def catch_up(self, row: int, place: Hashable) -> None:
        if place != self.place:
            self.settle(row)

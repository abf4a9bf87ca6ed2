"""Holds states that are set at admission, then read, one size for every row."""

from serving.arrays import Array
from serving.engine.states.kind import Stack, States


class ConstantStates(States):
    differs_between_beams = False

    def __init__(self, stack: Stack, slots: int) -> None:
        shape = [int(size) for size in stack.shape]
        super().__init__(stack, stack.zeros(slots, *shape))
        self._scratch = stack.zeros(slots, *shape)

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return self._stack.named(self._scratch[:, :num_rows])

    def admit(self, first: int, num_rows: int, span: int) -> None:
        rows = self._current[:, first : first + num_rows]
        self._memory.copy(rows, self._scratch[:, :num_rows])

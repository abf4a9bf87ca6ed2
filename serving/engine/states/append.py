"""Holds states that gain one position per token, in place: self-attention keys and values."""

from math import prod

from serving.arrays import Array, storage_type
from serving.bundle.manifest import LENGTH
from serving.engine.states.kind import NEXT, RowPart, Stack, States

# Heads that start a multiple of this apart compete for the same sets of a cache; some positions
# that are never used keep them apart (up to a fifth of a decoding step).
ALIASING_BYTES, SLACK = 16 * 1024, 16


class AppendStates(States):
    """Clears no row: what an earlier one left beyond a row's own length is never read."""

    def __init__(self, stack: Stack, slots: int, capacity: int) -> None:
        axis = stack.shape.index(LENGTH)
        block = prod(int(size) for size in stack.shape[axis + 1 :])
        if capacity * block * storage_type(stack.dtype).itemsize % ALIASING_BYTES == 0:
            capacity += SLACK
        shape = (capacity if size == LENGTH else int(size) for size in stack.shape)
        super().__init__(stack, stack.zeros(slots, *shape))
        self._before = (slice(None),) * (1 + axis)

    def written(self, first: int, last: int) -> dict[str, Array]:
        return self._stack.named(self._current[:, first:last], NEXT)

    def part(self, row: int, part: RowPart) -> Array:
        return self._current[:, row][(*self._before, part.positions)]

"""Holds constant states with an axis over source positions: cross-attention keys and values."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from serving.arrays import Array
from serving.bundle.manifest import SOURCE
from serving.engine.states.kind import NEXT, RowPart, Stack, States


@dataclass(frozen=True)
class SourceSizes:
    """Holds the spans there are, ascending, and the most padded tokens that are encoded at once."""

    spans: Sequence[int]
    max_scratch_tokens: int


class SourceStates(States):
    """Lays rows `span` apart in a flat buffer, as a graph wants [rows, ..., span, ...] without
    gaps; when the span changes they are copied to the other of two buffers.
    """

    differs_between_beams = False

    def __init__(self, stack: Stack, slots: int, sizes: SourceSizes) -> None:
        self._shape, self._slots = stack.shape, slots
        self._before = (slice(None),) * (1 + stack.shape.index(SOURCE))
        self._spans, self.span = sizes.spans, sizes.spans[0]
        self._sides = [stack.zeros(slots * self._row_size(sizes.spans[-1])) for _ in range(2)]
        self._scratch = stack.zeros(self._row_size(sizes.max_scratch_tokens))
        self._side = 0
        super().__init__(stack, self._shaped(self._sides[0], slots, self.span))

    @property
    def place(self) -> Hashable:
        return self._side, self.span

    @property
    def places(self) -> tuple[Hashable, ...]:
        return tuple(product((0, 1), self._spans))

    def go_to(self, place: Hashable) -> None:
        assert isinstance(place, tuple)
        self._side, self.span = place
        self._current = self._shaped(self._sides[self._side], self._slots, self.span)

    def written(self, first: int, last: int) -> dict[str, Array]:
        """Return the states: an operator that reads int8 ones puts them out too, unchanged."""
        return self._stack.named(self._current[:, first:last], NEXT)

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return self._stack.named(self._shaped(self._scratch, num_rows, span))

    def admit(self, first: int, num_rows: int, span: int) -> None:
        part = (slice(None), *self._before, slice(span))
        rows = self._current[:, first : first + num_rows]
        self._memory.copy(rows[part], self._shaped(self._scratch, num_rows, span))

    def part(self, row: int, part: RowPart) -> Array:
        return self._current[:, row][(*self._before, slice(part.num_source_tokens))]

    def fit_span(self, span: int, num_rows: int) -> None:
        part = (slice(None), *self._before, slice(min(self.span, span)))
        kept = self._current[:, :num_rows]
        self.span = span
        if num_rows:
            self._side = 1 - self._side
        self._current = self._shaped(self._sides[self._side], self._slots, span)
        if num_rows:
            self._memory.copy(self._current[:, :num_rows][part], kept[part])

    def _shaped(self, flat: Array, num_rows: int, span: int) -> Array:
        shape = (span if size == SOURCE else int(size) for size in self._shape)
        part = flat[:, : num_rows * self._row_size(span)]
        return part.reshape(len(part), num_rows, *shape, copy=False)

    def _row_size(self, span: int) -> int:
        return prod(span if size == SOURCE else int(size) for size in self._shape)

"""The state store: every state tensor of every row, and the shapes in which a step runs.

Active rows are always the prefix [0, num_rows), so a graph reads plain prefix views. The store
knows nothing of requests: it is told which rows come, move and grow.

The CPU runs any shape. On a device all launches of a shape are recorded when the engine starts, so
there are few shapes, and a batch is padded to the next one.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Protocol

from serving.arrays import Array, storage_type
from serving.bundle.manifest import LENGTH, SOURCE, Manifest, StateKind, StateSpec
from serving.engine.states.kind import (
    AppendStates,
    ConstantStates,
    ReplaceStates,
    RowExtent,
    RowPart,
    SourceSizes,
    SourceStates,
    Stack,
    States,
    UpdateStates,
    round_span,
)
from serving.engine.states.memory import Memory

DEFAULT_MAX_SOURCE_TOKENS = 1024


def max_source_tokens(manifest: Manifest) -> int:
    return manifest.limits.max_source_tokens or DEFAULT_MAX_SOURCE_TOKENS


def max_span(manifest: Manifest) -> int:
    return round_span(max_source_tokens(manifest))


class Grid(Protocol):
    def rows(self, num_rows: int, slots: int) -> int:
        """Round rows up to a shape, at most `slots`."""

    def span(self, num_tokens: int, longest: int) -> int:
        """Round source tokens up to a shape, at most `longest`."""


class Exact:
    def rows(self, num_rows: int, slots: int) -> int:
        return num_rows

    def span(self, num_tokens: int, longest: int) -> int:
        return round_span(num_tokens)


EXACT = Exact()


class StateStore:
    """Holds all states of a bundle, stacked by kind."""

    def __init__(
        self,
        manifest: Manifest,
        slots: int,
        max_encode_tokens: int,
        memory: Memory,
        grid: Grid = EXACT,
    ) -> None:
        encode = manifest.graphs.get("encode")
        encoded = {spec.name for spec in encode.outputs} if encode else set()
        longest = max_span(manifest)
        sizes = SourceSizes(all_spans(grid, longest), max(longest, max_encode_tokens))
        capacity = manifest.limits.max_target_tokens
        self.memory = memory
        self._round_span = partial(grid.span, longest=longest)
        self._kinds: list[States] = []
        for specs in _alike(manifest.states, encoded):
            stack, kind = Stack(specs, memory), specs[0].kind
            if kind is StateKind.APPEND:
                self._kinds.append(AppendStates(stack, slots, capacity))
            elif kind is StateKind.REPLACE:
                self._kinds.append(ReplaceStates(stack, slots, specs[0].name in encoded))
            elif kind is StateKind.UPDATE:
                self._kinds.append(UpdateStates(stack, slots, specs[0].name in encoded))
            elif SOURCE in stack.shape:
                self._kinds.append(SourceStates(stack, slots, sizes))
            else:
                self._kinds.append(ConstantStates(stack, slots))

    @property
    def place(self) -> tuple[Hashable, ...]:
        """Identify where the current buffers are, see `States.place`."""
        return tuple(states.place for states in self._kinds)

    @property
    def span(self) -> int:
        """Count the source positions that every row has room for now."""
        return max(states.span for states in self._kinds)

    def inputs(self, first: int, last: int) -> dict[str, Array]:
        return _merged(states.read(first, last) for states in self._kinds)

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        return _merged(states.written(first, last) for states in self._kinds)

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        """Return where the encode graph writes its outputs; the next run overwrites them."""
        return _merged(states.scratch(num_rows, span) for states in self._kinds)

    def admit(self, first: int, num_rows: int, span: int) -> None:
        """Fill new rows from what was encoded."""
        for states in self._kinds:
            states.admit(first, num_rows, span)

    def parts(self, row: int, part: RowPart) -> list[Array]:
        """Return views of part of what a row holds, in an order that never changes."""
        return [states.part(row, part) for states in self._kinds]

    def restore(self, row: int, part: RowPart, saved: Sequence[Array]) -> None:
        """Fill a row with copies of what `parts` gave of some row."""
        for target, content in zip(self.parts(row, part), saved, strict=True):
            self.memory.copy(target, content)

    def move(self, source: int, target: int, extent: RowExtent) -> None:
        """Copy a row's states, whole, over those of another row."""
        part = RowPart.whole(extent)
        self.restore(target, part, self.parts(source, part))

    def move_suffix(self, source: int, target: int, num_shared: int, extent: RowExtent) -> None:
        """Copy a row over one of the same source whose first `num_shared` positions are equal:
        those, and the constant states, stay where they are.
        """
        part = RowPart(slice(num_shared, extent.target_tokens), 0)
        for states in self._kinds:
            if states.differs_between_beams:
                self.memory.copy(states.part(target, part), states.part(source, part))

    def flip(self) -> None:
        """Let the next run read what a run over the whole batch has written."""
        for states in self._kinds:
            states.flip()

    def settle(self, row: int) -> None:
        """Let the next run read what a run over this row alone has written."""
        for states in self._kinds:
            states.settle(row)

    def catch_up(self, row: int, place: tuple[Hashable, ...]) -> None:
        """Keep what a row held at `place`, when it was not among those that stepped since."""
        for states, old in zip(self._kinds, place, strict=True):
            states.catch_up(row, old)

    def fit_span(self, num_source_tokens: int, num_rows: int) -> None:
        """Give the first `num_rows` rows a span for the longest source; shrink when it pays."""
        span, old = self._round_span(num_source_tokens), self.span
        if not old >= span > old // 2:
            for states in self._kinds:
                states.fit_span(span, num_rows)

    def walk(self) -> Iterator[None]:
        """Go through every place that the buffers may be in, then back. No row may be in use."""
        together: dict[tuple[Hashable, ...], list[States]] = {}
        for states in self._kinds:
            together.setdefault(states.places, []).append(states)
        first = tuple(group[0].place for group in together.values())
        for places in (*product(*together), first):
            for group, place in zip(together.values(), places, strict=True):
                for states in group:
                    states.go_to(place)
            if places is not first:
                yield


def _alike(specs: Sequence[StateSpec], encoded: set[str]) -> list[list[StateSpec]]:
    groups: dict[tuple[object, ...], list[StateSpec]] = {}
    for spec in specs:
        key = (spec.kind, spec.shape, spec.dtype, spec.name in encoded)
        groups.setdefault(key, []).append(spec)
    return list(groups.values())


def _merged(parts: Iterable[dict[str, Array]]) -> dict[str, Array]:
    return {name: array for part in parts for name, array in part.items()}


@dataclass(frozen=True)
class RowBytes:
    """Counts the bytes of a row's states: fixed, per target position and per source position."""

    fixed: int
    per_target_token: int
    per_source_token: int


def row_bytes(specs: tuple[StateSpec, ...]) -> RowBytes:
    totals = {"": 0, LENGTH: 0, SOURCE: 0}
    for spec in specs:
        axis = next((axis for axis in spec.shape if isinstance(axis, str)), "")
        size = prod(axis for axis in spec.shape if isinstance(axis, int))
        copies = 2 if spec.kind is StateKind.REPLACE else 1
        totals[axis] += copies * size * storage_type(spec.dtype).itemsize
    return RowBytes(totals[""], totals[LENGTH], totals[SOURCE])


LEAST_SPAN = 64


class Coarse:
    """Has rows of at most a third too many, and powers of two as spans."""

    def rows(self, num_rows: int, slots: int) -> int:
        step = max(1, 1 << (num_rows - 1).bit_length() >> 2)
        return min(-(-num_rows // step) * step, slots)

    def span(self, num_tokens: int, longest: int) -> int:
        return min(max(1 << max(num_tokens - 1, 0).bit_length(), LEAST_SPAN), longest)


def all_rows(grid: Grid, slots: int) -> list[int]:
    return sorted({grid.rows(num_rows, slots) for num_rows in range(1, slots + 1)})


def all_spans(grid: Grid, longest: int) -> list[int]:
    return sorted({grid.span(num_tokens, longest) for num_tokens in range(1, longest + 1)})

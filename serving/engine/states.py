"""The slot store: every state tensor of every row, and how each kind of state moves.

Row r of every state is slot r. Active rows are always the prefix [0, num_rows), so a graph reads
plain prefix views. The store knows nothing of requests: it is told which rows come, move and grow.
"""

from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from serving.bundle.manifest import LENGTH, SOURCE, Manifest, StateKind, StateSpec
from serving.engine.memory import Array, Memory

SPAN_STEP = 16
# Heads that start a multiple of this apart compete for the same sets of a cache; some positions
# that are never used keep them apart (up to a fifth of a decoding step).
ALIASING_BYTES, SLACK = 16 * 1024, 16
DEFAULT_MAX_SOURCE_TOKENS = 1024


def round_span(num_tokens: int) -> int:
    """Round source tokens up to a span: a multiple of 16, coarser as it grows, at most a quarter
    too long.
    """
    step = max(SPAN_STEP, 1 << max(num_tokens - 1, 0).bit_length() >> 3)
    return -(-num_tokens // step) * step


def max_source_tokens(manifest: Manifest) -> int:
    return manifest.limits.max_source_tokens or DEFAULT_MAX_SOURCE_TOKENS


def max_span(manifest: Manifest) -> int:
    return round_span(max_source_tokens(manifest))


@dataclass(frozen=True)
class Layout:
    """What the addresses behind a prefix view depend on, besides the number of rows."""

    span: int
    side: int  # which of its two buffers a constant state with a source axis is in
    parity: int  # which of its two buffers a replace state is read from

    @property
    def other_side(self) -> int:
        return 1 - self.side

    @property
    def other_parity(self) -> int:
        return 1 - self.parity


@dataclass(frozen=True)
class Used:
    """How much of a row is worth copying."""

    target_tokens: int
    source_tokens: int


class State(Protocol):
    """One named tensor of every slot."""

    spec: StateSpec

    def read(self, first: int, last: int, layout: Layout) -> Array:
        """The step graph's input for rows [first, last)."""

    def written(self, first: int, last: int, layout: Layout) -> Array | None:
        """The step graph's output for these rows; None where it has none."""

    def admit(self, first: int, encoded: dict[str, Array], num_rows: int, layout: Layout) -> None:
        """Fill new rows from the encode graph's outputs."""

    def move(self, source: int, target: int, used: Used, layout: Layout) -> None: ...


class AppendState:
    """One position is added per token, in place: self-attention keys and values."""

    def __init__(self, spec: StateSpec, slots: int, capacity: int, memory: Memory) -> None:
        self.spec, self._memory = spec, memory
        self._axis = spec.shape.index(LENGTH)
        block = prod(int(axis) for axis in spec.shape[self._axis + 1 :])
        if capacity * block * np.dtype(spec.dtype).itemsize % ALIASING_BYTES == 0:
            capacity += SLACK
        shape = tuple(capacity if axis == LENGTH else int(axis) for axis in spec.shape)
        self._buffer = memory.zeros((slots, *shape), spec.dtype)

    def read(self, first: int, last: int, layout: Layout) -> Array:
        return self._buffer[first:last]

    def written(self, first: int, last: int, layout: Layout) -> Array | None:
        return self._buffer[first:last]

    def admit(self, first: int, encoded: dict[str, Array], num_rows: int, layout: Layout) -> None:
        """Nothing: what an earlier row left beyond a row's own length is never read."""

    def move(self, source: int, target: int, used: Used, layout: Layout) -> None:
        part = (*[slice(None)] * self._axis, slice(used.target_tokens))
        self._memory.copy(self._buffer[target][part], self._buffer[source][part])


class ReplaceState:
    """Overwritten at every token, so read from one buffer and written to another: an RNN's hidden
    vector.
    """

    def __init__(self, spec: StateSpec, slots: int, memory: Memory) -> None:
        self.spec, self._memory = spec, memory
        shape = tuple(int(axis) for axis in spec.shape)
        self._buffers = [memory.zeros((slots, *shape), spec.dtype) for _ in range(2)]

    def read(self, first: int, last: int, layout: Layout) -> Array:
        return self._buffers[layout.parity][first:last]

    def written(self, first: int, last: int, layout: Layout) -> Array | None:
        return self._buffers[layout.other_parity][first:last]

    def admit(self, first: int, encoded: dict[str, Array], num_rows: int, layout: Layout) -> None:
        rows = self.read(first, first + num_rows, layout)
        if self.spec.name in encoded:
            self._memory.copy(rows, encoded[self.spec.name])
        else:
            self._memory.clear(rows)

    def move(self, source: int, target: int, used: Used, layout: Layout) -> None:
        buffer = self._buffers[layout.parity]
        self._memory.copy(buffer[target], buffer[source])

    def settle(self, row: int, layout: Layout) -> None:
        """Make what a run over this row alone has written what the next run reads."""
        self._memory.copy(
            self._buffers[layout.parity][row], self._buffers[layout.other_parity][row]
        )


class ConstantState:
    """Set at admission, then read, one size for every row."""

    def __init__(self, spec: StateSpec, slots: int, memory: Memory) -> None:
        self.spec, self._memory = spec, memory
        shape = tuple(int(axis) for axis in spec.shape)
        self._buffer = memory.zeros((slots, *shape), spec.dtype)

    def read(self, first: int, last: int, layout: Layout) -> Array:
        return self._buffer[first:last]

    def written(self, first: int, last: int, layout: Layout) -> Array | None:
        return None

    def admit(self, first: int, encoded: dict[str, Array], num_rows: int, layout: Layout) -> None:
        self._memory.copy(self._buffer[first : first + num_rows], encoded[self.spec.name])

    def move(self, source: int, target: int, used: Used, layout: Layout) -> None:
        self._memory.copy(self._buffer[target], self._buffer[source])


class SourceState:
    """Constant, with an axis over source positions as long as the span: cross-attention keys and
    values.

    A graph wants [rows, ..., span, ...] without gaps, so the rows lie in a flat buffer, `span`
    apart; when the span changes they are copied to the other of two buffers.
    """

    def __init__(self, spec: StateSpec, slots: int, max_span: int, memory: Memory) -> None:
        self.spec, self._memory = spec, memory
        self._axis = spec.shape.index(SOURCE)
        size = slots * prod(self._row_shape(max_span))
        self._buffers = [memory.zeros((size,), spec.dtype) for _ in range(2)]

    def read(self, first: int, last: int, layout: Layout) -> Array:
        return self._view(last, layout.side, layout.span)[first:last]

    def written(self, first: int, last: int, layout: Layout) -> Array | None:
        return None

    def admit(self, first: int, encoded: dict[str, Array], num_rows: int, layout: Layout) -> None:
        rows = self.read(first, first + num_rows, layout)
        source = encoded[self.spec.name]
        span = source.shape[1 + self._axis]
        self._memory.copy(rows[self._positions(span)], source)

    def move(self, source: int, target: int, used: Used, layout: Layout) -> None:
        rows = self._view(max(source, target) + 1, layout.side, layout.span)
        part = self._positions(used.source_tokens)[1:]
        self._memory.copy(rows[target][part], rows[source][part])

    def restride(self, num_rows: int, old: Layout, new: Layout) -> None:
        part = self._positions(min(old.span, new.span))
        target = self._view(num_rows, new.side, new.span)
        source = self._view(num_rows, old.side, old.span)
        self._memory.copy(target[part], source[part])

    def _view(self, num_rows: int, side: int, span: int) -> Array:
        shape = (num_rows, *self._row_shape(span))
        return self._buffers[side][: prod(shape)].reshape(shape)

    def _row_shape(self, span: int) -> tuple[int, ...]:
        return tuple(span if axis == SOURCE else int(axis) for axis in self.spec.shape)

    def _positions(self, num_tokens: int) -> tuple[slice, ...]:
        """Index of the first source positions of a [rows, ..., span, ...] array."""
        return (*[slice(None)] * (1 + self._axis), slice(num_tokens))


class StateStore:
    """All states of a bundle."""

    def __init__(self, manifest: Manifest, slots: int, memory: Memory) -> None:
        self.layout = Layout(span=SPAN_STEP, side=0, parity=0)
        capacity = manifest.limits.max_target_tokens
        self._states: list[State] = []
        for spec in manifest.states:
            if spec.kind is StateKind.APPEND:
                self._states.append(AppendState(spec, slots, capacity, memory))
            elif spec.kind is StateKind.REPLACE:
                self._states.append(ReplaceState(spec, slots, memory))
            elif SOURCE in spec.shape:
                self._states.append(SourceState(spec, slots, max_span(manifest), memory))
            else:
                self._states.append(ConstantState(spec, slots, memory))
        self._by_source = [state for state in self._states if isinstance(state, SourceState)]
        self._replaced = [state for state in self._states if isinstance(state, ReplaceState)]

    def inputs(self, first: int, last: int) -> dict[str, Array]:
        return {state.spec.name: state.read(first, last, self.layout) for state in self._states}

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        views = {state.spec.name: state.written(first, last, self.layout) for state in self._states}
        return {f"{name}.next": view for name, view in views.items() if view is not None}

    def admit(self, first: int, num_rows: int, encoded: dict[str, Array]) -> None:
        for state in self._states:
            state.admit(first, encoded, num_rows, self.layout)

    def move(self, source: int, target: int, used: Used) -> None:
        for state in self._states:
            state.move(source, target, used, self.layout)

    def flip(self) -> None:
        """The whole batch has taken a step: what was written is what is read next."""
        if self._replaced:
            layout = self.layout
            self.layout = Layout(layout.span, layout.side, layout.other_parity)

    def settle(self, row: int) -> None:
        """One row alone has taken a step."""
        for state in self._replaced:
            state.settle(row, self.layout)

    def fit_span(self, num_source_tokens: int, num_rows: int) -> None:
        """Give the first `num_rows` rows a span for the longest source; shrink when it pays."""
        span, old = round_span(num_source_tokens), self.layout
        if not self._by_source or old.span >= span > old.span // 2:
            return
        self.layout = Layout(span, old.other_side if num_rows else old.side, old.parity)
        for state in self._by_source if num_rows else ():
            state.restride(num_rows, old, self.layout)


@dataclass(frozen=True)
class RowBytes:
    """What a row's states take: fixed, per target position and per source position."""

    fixed: int
    per_target_token: int
    per_source_token: int


def row_bytes(specs: tuple[StateSpec, ...]) -> RowBytes:
    totals = {"": 0, LENGTH: 0, SOURCE: 0}
    for spec in specs:
        axis = next((axis for axis in spec.shape if isinstance(axis, str)), "")
        size = prod(axis for axis in spec.shape if isinstance(axis, int))
        copies = 2 if spec.kind is StateKind.REPLACE else 1
        totals[axis] += copies * size * np.dtype(spec.dtype).itemsize
    return RowBytes(totals[""], totals[LENGTH], totals[SOURCE])

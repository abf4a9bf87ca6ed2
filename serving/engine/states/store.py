"""The slot store: every state tensor of every row, and how each kind of state moves.

Row r of every state is slot r. Active rows are always the prefix [0, num_rows), so a graph reads
plain prefix views. States of one kind, shape and type (a layer's keys, its values, the next
layer's) are stacked in one array, so that a row moves by one copy, not by one per state. The store
knows nothing of requests: it is told which rows come, move and grow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from serving.bundle.manifest import LENGTH, SOURCE, Manifest, StateKind, StateSpec
from serving.engine.states.memory import Array, Memory

SPAN_STEP = 16
NEXT = ".next"  # marks the step graph's output of a state
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


class States(Protocol):
    """Tensors of one kind, shape and type, for every slot; dictionaries are by tensor name."""

    def read(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        """The step graph's inputs for rows [first, last)."""

    def written(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        """The step graph's outputs for these rows."""

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        """Where the encode graph writes new rows."""

    def admit(self, first: int, num_rows: int, span: int, layout: Layout) -> None:
        """Fill new rows from the scratch memory."""

    def part(self, row: int, positions: slice, num_source_tokens: int, layout: Layout) -> Array:
        """A view of what a row holds: of these target positions, of so many source tokens, and of
        all that has neither axis.
        """


class Stack:
    """Names the layers of stacked tensors: [states, rows, ...]."""

    def __init__(self, specs: Sequence[StateSpec], memory: Memory) -> None:
        self.names = [spec.name for spec in specs]
        self.shape, self.dtype = specs[0].shape, specs[0].dtype
        self._memory = memory

    def zeros(self, num_rows: int, *shape: int) -> Array:
        return self._memory.zeros((len(self.names), num_rows, *shape), self.dtype)

    def named(self, stacked: Array, suffix: str = "") -> dict[str, Array]:
        return {f"{name}{suffix}": stacked[i] for i, name in enumerate(self.names)}


class AppendStates:
    """One position is added per token, in place: self-attention keys and values."""

    def __init__(self, stack: Stack, slots: int, capacity: int, memory: Memory) -> None:
        self._stack = stack
        axis = stack.shape.index(LENGTH)
        block = prod(int(size) for size in stack.shape[axis + 1 :])
        if capacity * block * np.dtype(stack.dtype).itemsize % ALIASING_BYTES == 0:
            capacity += SLACK
        shape = (capacity if size == LENGTH else int(size) for size in stack.shape)
        self._buffer = stack.zeros(slots, *shape)
        self._before = (slice(None),) * (1 + axis)

    def read(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        return self._stack.named(self._buffer[:, first:last])

    def written(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        return self._stack.named(self._buffer[:, first:last], NEXT)

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return {}

    def admit(self, first: int, num_rows: int, span: int, layout: Layout) -> None:
        """Nothing: what an earlier row left beyond a row's own length is never read."""

    def part(self, row: int, positions: slice, num_source_tokens: int, layout: Layout) -> Array:
        return self._buffer[:, row][(*self._before, positions)]


class ReplaceStates:
    """Overwritten at every token, so read from one buffer and written to another: an RNN's hidden
    vector. Those that the encoder does not set begin at zero.
    """

    def __init__(self, stack: Stack, slots: int, is_encoded: bool, memory: Memory) -> None:
        self._stack, self._memory = stack, memory
        shape = [int(size) for size in stack.shape]
        self._buffers = [stack.zeros(slots, *shape) for _ in range(2)]
        self._scratch = stack.zeros(slots, *shape) if is_encoded else None

    def read(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        return self._stack.named(self._buffers[layout.parity][:, first:last])

    def written(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        return self._stack.named(self._buffers[layout.other_parity][:, first:last], NEXT)

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return {} if self._scratch is None else self._stack.named(self._scratch[:, :num_rows])

    def admit(self, first: int, num_rows: int, span: int, layout: Layout) -> None:
        rows = self._buffers[layout.parity][:, first : first + num_rows]
        if self._scratch is None:
            self._memory.clear(rows)
        else:
            self._memory.copy(rows, self._scratch[:, :num_rows])

    def part(self, row: int, positions: slice, num_source_tokens: int, layout: Layout) -> Array:
        return self._buffers[layout.parity][:, row]

    def settle(self, row: int, layout: Layout) -> None:
        """Make what a run over this row alone has written what the next run reads."""
        read, written = self._buffers[layout.parity], self._buffers[layout.other_parity]
        self._memory.copy(read[:, row], written[:, row])


class ConstantStates:
    """Set at admission, then read, one size for every row."""

    def __init__(self, stack: Stack, slots: int, memory: Memory) -> None:
        self._stack, self._memory = stack, memory
        shape = [int(size) for size in stack.shape]
        self._buffer, self._scratch = (stack.zeros(slots, *shape) for _ in range(2))

    def read(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        return self._stack.named(self._buffer[:, first:last])

    def written(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        return {}

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return self._stack.named(self._scratch[:, :num_rows])

    def admit(self, first: int, num_rows: int, span: int, layout: Layout) -> None:
        rows = self._buffer[:, first : first + num_rows]
        self._memory.copy(rows, self._scratch[:, :num_rows])

    def part(self, row: int, positions: slice, num_source_tokens: int, layout: Layout) -> Array:
        return self._buffer[:, row]


class SourceStates:
    """Constant, with an axis over source positions as long as the span: cross-attention keys and
    values.

    A graph wants [rows, ..., span, ...] without gaps, so the rows lie in a flat buffer, `span`
    apart; when the span changes they are copied to the other of two buffers.
    """

    def __init__(self, stack: Stack, slots: int, sizes: "SourceSizes", memory: Memory) -> None:
        self._stack, self._memory = stack, memory
        self._before = (slice(None),) * (1 + stack.shape.index(SOURCE))
        self._slots = slots
        self._sides = [stack.zeros(slots * self._row_size(sizes.max_span)) for _ in range(2)]
        self._scratch = stack.zeros(self._row_size(sizes.max_scratch_tokens))
        self._views: dict[tuple[int, int], Array] = {}

    def read(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        return self._stack.named(self._rows(layout)[:, first:last])

    def written(self, first: int, last: int, layout: Layout) -> dict[str, Array]:
        return {}

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        return self._stack.named(self._shaped(self._scratch, num_rows, span))

    def admit(self, first: int, num_rows: int, span: int, layout: Layout) -> None:
        rows = self._rows(layout)[:, first : first + num_rows]
        part = (slice(None), *self._before, slice(span))
        self._memory.copy(rows[part], self._shaped(self._scratch, num_rows, span))

    def part(self, row: int, positions: slice, num_source_tokens: int, layout: Layout) -> Array:
        return self._rows(layout)[:, row][(*self._before, slice(num_source_tokens))]

    def restride(self, num_rows: int, old: Layout, new: Layout) -> None:
        part = (slice(None), *self._before, slice(min(old.span, new.span)))
        target, source = self._rows(new)[:, :num_rows], self._rows(old)[:, :num_rows]
        self._memory.copy(target[part], source[part])

    def _rows(self, layout: Layout) -> Array:
        """[states, slots, ..., span, ...]"""
        key = (layout.side, layout.span)
        if key not in self._views:
            self._views[key] = self._shaped(self._sides[layout.side], self._slots, layout.span)
        return self._views[key]

    def _shaped(self, flat: Array, num_rows: int, span: int) -> Array:
        shape = (span if size == SOURCE else int(size) for size in self._stack.shape)
        part = flat[:, : num_rows * self._row_size(span)]
        return part.reshape(len(part), num_rows, *shape, copy=False)

    def _row_size(self, span: int) -> int:
        return prod(span if size == SOURCE else int(size) for size in self._stack.shape)


@dataclass(frozen=True)
class SourceSizes:
    max_span: int
    max_scratch_tokens: int


class StateStore:
    """All states of a bundle."""

    def __init__(
        self, manifest: Manifest, slots: int, max_encode_tokens: int, memory: Memory
    ) -> None:
        self.layout = Layout(span=SPAN_STEP, side=0, parity=0)
        self._memory = memory
        encode = manifest.graphs.get("encode")
        encoded = {spec.name for spec in encode.outputs} if encode else set()
        longest = max_span(manifest)
        sizes = SourceSizes(longest, max(longest, max_encode_tokens))
        self._appended: list[AppendStates] = []
        self._replaced: list[ReplaceStates] = []
        self._constant: list[ConstantStates] = []
        self._by_source: list[SourceStates] = []
        for specs in _alike(manifest.states, encoded):
            stack, kind = Stack(specs, memory), specs[0].kind
            if kind is StateKind.APPEND:
                capacity = manifest.limits.max_target_tokens
                self._appended.append(AppendStates(stack, slots, capacity, memory))
            elif kind is StateKind.REPLACE:
                is_encoded = specs[0].name in encoded
                self._replaced.append(ReplaceStates(stack, slots, is_encoded, memory))
            elif SOURCE in stack.shape:
                self._by_source.append(SourceStates(stack, slots, sizes, memory))
            else:
                self._constant.append(ConstantStates(stack, slots, memory))
        self._all: list[States] = [
            *self._appended,
            *self._replaced,
            *self._constant,
            *self._by_source,
        ]

    def inputs(self, first: int, last: int) -> dict[str, Array]:
        return _merged(states.read(first, last, self.layout) for states in self._all)

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        return _merged(states.written(first, last, self.layout) for states in self._all)

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        """Where the encode graph writes its outputs; the next run overwrites them."""
        return _merged(states.scratch(num_rows, span) for states in self._all)

    def admit(self, first: int, num_rows: int, span: int) -> None:
        """Fill new rows from what was encoded."""
        for states in self._all:
            states.admit(first, num_rows, span, self.layout)

    def parts(self, row: int, positions: slice, num_source_tokens: int) -> list[Array]:
        """Views of what a row holds, see `States.part`, in an order that never changes."""
        parts = (positions, num_source_tokens, self.layout)
        return [states.part(row, *parts) for states in self._all]

    def restore(
        self, row: int, positions: slice, num_source_tokens: int, saved: Sequence[Array]
    ) -> None:
        """Fill a row with copies of what `parts` gave of some row."""
        parts = self.parts(row, positions, num_source_tokens)
        for part, content in zip(parts, saved, strict=True):
            self._memory.copy(part, content)

    def move(self, source: int, target: int, used: Used) -> None:
        """Copy a row's states, whole, over those of another row."""
        extent = (slice(used.target_tokens), used.source_tokens)
        self.restore(target, *extent, self.parts(source, *extent))

    def move_suffix(self, source: int, target: int, num_shared: int, used: Used) -> None:
        """The same between rows of one source whose first `num_shared` positions are equal: those
        and the constant states stay where they are.
        """
        extent = (slice(num_shared, used.target_tokens), 0, self.layout)
        changing: list[States] = [*self._appended, *self._replaced]
        for states in changing:
            self._memory.copy(states.part(target, *extent), states.part(source, *extent))

    def flip(self) -> None:
        """The whole batch has taken a step: what was written is what is read next."""
        if self._replaced:
            layout = self.layout
            self.layout = Layout(layout.span, layout.side, layout.other_parity)

    def settle(self, row: int) -> None:
        """One row alone has taken a step."""
        for states in self._replaced:
            states.settle(row, self.layout)

    def catch_up(self, row: int, layout: Layout) -> None:
        """Keep what a row held in `layout`, when it was not among those that stepped since."""
        if layout.parity != self.layout.parity:
            self.settle(row)

    def fit_span(self, num_source_tokens: int, num_rows: int) -> None:
        """Give the first `num_rows` rows a span for the longest source; shrink when it pays."""
        span, old = round_span(num_source_tokens), self.layout
        if not self._by_source or old.span >= span > old.span // 2:
            return
        self.layout = Layout(span, old.other_side if num_rows else old.side, old.parity)
        for states in self._by_source if num_rows else ():
            states.restride(num_rows, old, self.layout)


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

"""Kinds of decoder state, by how they change with each token: append, replace, update, constant,
source.

Row r of every state is slot r. States of one kind, shape and type (a layer's keys, its values, the
next layer's) are stacked in one array, so that a row is moved by one copy, not by one per state.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from serving.bundle.manifest import LENGTH, SOURCE, StateSpec
from serving.engine.arrays import Array, storage_type
from serving.engine.states.memory import Memory

# Spans are rounded up, so that a graph is bound for few of them and arrays rarely move.
SPAN_STEP = 16
NEXT = ".next"  # suffix of the step graph's output of a state
# Heads whose distance is a multiple of this compete for the same sets of a cache. A few unused
# positions avoid this, which saves up to a fifth of a decoding step.
ALIASING_BYTES, SLACK = 16 * 1024, 16


def round_span(num_tokens: int) -> int:
    """Round the number of source tokens up to a span: a multiple of 16, then of larger steps, at
    most a quarter too long.
    """
    step = max(SPAN_STEP, 1 << max(num_tokens - 1, 0).bit_length() >> 3)
    return -(-num_tokens // step) * step


@dataclass(frozen=True, slots=True)
class RowExtent:
    """The part of a row's states that is in use, in target and source tokens."""

    target_tokens: int
    source_tokens: int


@dataclass(frozen=True, slots=True)
class RowPart:
    """A part of a row's states: these target positions, this number of source tokens, and all
    states without these axes.
    """

    positions: slice
    num_source_tokens: int

    @classmethod
    def whole(cls, extent: RowExtent) -> "RowPart":
        return cls(slice(extent.target_tokens), extent.source_tokens)


class Stack:
    """The tensor names of stacked layers: [states, rows, ...]."""

    def __init__(self, specs: Sequence[StateSpec], memory: Memory) -> None:
        self.names = [spec.name for spec in specs]
        self.shape, self.dtype = specs[0].shape, specs[0].dtype
        self.memory = memory

    def zeros(self, num_rows: int, *shape: int) -> Array:
        return self.memory.zeros((len(self.names), num_rows, *shape), self.dtype)

    def by_name(self, stacked: Array, suffix: str = "") -> dict[str, Array]:
        return {f"{name}{suffix}": stacked[i] for i, name in enumerate(self.names)}


class States:
    """Stacked tensors for every slot; dictionaries are by tensor name.

    Each kind allocates its buffers and selects the current one. Methods that a kind does not need
    do nothing here.

    differs_between_beams: whether rows of one beam search can differ in it.
    span: number of source positions that its tensors currently have.
    buffer_key: identifies the current buffer: addresses that are bound to a graph are valid while
        this value is equal.
    """

    differs_between_beams = True
    span = SPAN_STEP
    buffer_key: Hashable = None

    def __init__(self, stack: Stack, current: Array) -> None:
        """current: [states, slots, ...], the buffer that the step graph reads."""
        self._stack, self._memory = stack, stack.memory
        self._current = current

    @property
    def buffer_keys(self) -> tuple[Hashable, ...]:
        """Return all possible values of `buffer_key`. Kinds with the same values always have the
        same `buffer_key`.
        """
        return (None,)

    def select_buffer(self, buffer_key: Hashable) -> None:
        """Make the buffer with this key the current one, without changing its contents."""

    def inputs(self, first: int, last: int) -> dict[str, Array]:
        """Return the step graph's inputs for rows [first, last)."""
        return self._stack.by_name(self._current[:, first:last])

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        """Return the step graph's outputs for these rows."""
        return {}

    def encoder_outputs(self, num_rows: int, span: int) -> dict[str, Array]:
        """Return the arrays to which the encode graph writes new rows."""
        return {}

    def fill_rows(self, first: int, num_rows: int, span: int) -> None:
        """Fill new rows from the encoder's outputs."""

    def view(self, row: int, part: RowPart) -> Array:
        """Return a view of part of a row's states."""
        return self._current[:, row]

    def fit_span(self, span: int, num_rows: int) -> None:
        """Resize to another span, keeping the states of the first `num_rows` rows."""


class AppendStates(States):
    """States that grow by one position per token. Rows are not cleared: positions beyond a row's
    length are never read.
    """

    def __init__(self, stack: Stack, slots: int, capacity: int) -> None:
        axis = stack.shape.index(LENGTH)
        block = prod(int(size) for size in stack.shape[axis + 1 :])
        if capacity * block * storage_type(stack.dtype).itemsize % ALIASING_BYTES == 0:
            capacity += SLACK
        shape = (capacity if size == LENGTH else int(size) for size in stack.shape)
        super().__init__(stack, stack.zeros(slots, *shape))
        self._axes_before = (slice(None),) * (1 + axis)

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        return self._stack.by_name(self._current[:, first:last], NEXT)

    def view(self, row: int, part: RowPart) -> Array:
        return self._current[:, row][(*self._axes_before, part.positions)]


class ConstantStates(States):
    differs_between_beams = False

    def __init__(self, stack: Stack, slots: int) -> None:
        shape = [int(size) for size in stack.shape]
        super().__init__(stack, stack.zeros(slots, *shape))
        self._encoder_outputs = stack.zeros(slots, *shape)

    def encoder_outputs(self, num_rows: int, span: int) -> dict[str, Array]:
        return self._stack.by_name(self._encoder_outputs[:, :num_rows])

    def fill_rows(self, first: int, num_rows: int, span: int) -> None:
        rows = self._current[:, first : first + num_rows]
        self._memory.copy(rows, self._encoder_outputs[:, :num_rows])


class UpdateStates(States):
    """States with one buffer: the step graph reads a state before it writes it. States that the
    encoder does not set start at zero.
    """

    def __init__(self, stack: Stack, slots: int, is_encoded: bool) -> None:
        shape = [int(size) for size in stack.shape]
        super().__init__(stack, stack.zeros(slots, *shape))
        self._encoder_outputs = stack.zeros(slots, *shape) if is_encoded else None

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        return self._stack.by_name(self._current[:, first:last], NEXT)

    def encoder_outputs(self, num_rows: int, span: int) -> dict[str, Array]:
        return (
            {}
            if self._encoder_outputs is None
            else self._stack.by_name(self._encoder_outputs[:, :num_rows])
        )

    def fill_rows(self, first: int, num_rows: int, span: int) -> None:
        rows = self._current[:, first : first + num_rows]
        if self._encoder_outputs is None:
            self._memory.clear(rows)
        else:
            self._memory.copy(rows, self._encoder_outputs[:, :num_rows])


class ReplaceStates(UpdateStates):
    """States with two buffers, one to read and one to write, which are swapped after every step."""

    def __init__(self, stack: Stack, slots: int, is_encoded: bool) -> None:
        super().__init__(stack, slots, is_encoded)
        self._next = stack.zeros(*self._current.shape[1:])
        self.buffer_key: int = 0  # the index of the current buffer

    @property
    def buffer_keys(self) -> tuple[Hashable, ...]:
        return 0, 1

    def select_buffer(self, buffer_key: Hashable) -> None:
        if buffer_key != self.buffer_key:
            self.swap()

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        return self._stack.by_name(self._next[:, first:last], NEXT)

    def swap(self) -> None:
        """Swap the buffers after a run over the whole batch, so that the next run reads its
        outputs.
        """
        self._current, self._next = self._next, self._current
        self.buffer_key = 1 - self.buffer_key

    def sync_row(self, row: int) -> None:
        """Copy a row from the other buffer to the current one."""
        self._memory.copy(self._current[:, row], self._next[:, row])


@dataclass(frozen=True)
class SourceSizes:
    """The possible spans, ascending, and the maximum number of padded tokens in one encoder run."""

    spans: Sequence[int]
    max_encode_tokens: int


class SourceStates(States):
    """States with a source axis. Rows are stored `span` apart in a flat buffer, because a graph
    needs [rows, ..., span, ...] without gaps; when the span changes, they are copied to the other
    of two buffers.
    """

    differs_between_beams = False

    def __init__(self, stack: Stack, slots: int, sizes: SourceSizes) -> None:
        self._shape, self._slots = stack.shape, slots
        self._axes_before = (slice(None),) * (1 + stack.shape.index(SOURCE))
        self._spans, self.span = sizes.spans, sizes.spans[0]
        self._buffers = [stack.zeros(slots * self._row_size(sizes.spans[-1])) for _ in range(2)]
        self._encoder_outputs = stack.zeros(self._row_size(sizes.max_encode_tokens))
        self.buffer_key: tuple[int, int] = (0, self.span)  # the current buffer's index, its span
        super().__init__(stack, self._reshape(self._buffers[0], slots, self.span))

    @property
    def buffer_keys(self) -> tuple[Hashable, ...]:
        return tuple(product((0, 1), self._spans))

    def select_buffer(self, buffer_key: Hashable) -> None:
        assert isinstance(buffer_key, tuple)
        self.buffer_key = index, self.span = buffer_key
        self._current = self._reshape(self._buffers[index], self._slots, self.span)

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        """Return the states: an operator that reads int8 states also outputs them, unchanged."""
        return self._stack.by_name(self._current[:, first:last], NEXT)

    def encoder_outputs(self, num_rows: int, span: int) -> dict[str, Array]:
        return self._stack.by_name(self._reshape(self._encoder_outputs, num_rows, span))

    def fill_rows(self, first: int, num_rows: int, span: int) -> None:
        part = (slice(None), *self._axes_before, slice(span))
        rows = self._current[:, first : first + num_rows]
        self._memory.copy(rows[part], self._reshape(self._encoder_outputs, num_rows, span))

    def view(self, row: int, part: RowPart) -> Array:
        return self._current[:, row][(*self._axes_before, slice(part.num_source_tokens))]

    def fit_span(self, span: int, num_rows: int) -> None:
        part = (slice(None), *self._axes_before, slice(min(self.span, span)))
        rows, index = self._current[:, :num_rows], self.buffer_key[0]
        self.select_buffer((1 - index if num_rows else index, span))
        if num_rows:
            self._memory.copy(self._current[:, :num_rows][part], rows[part])

    def _reshape(self, flat: Array, num_rows: int, span: int) -> Array:
        shape = (span if size == SOURCE else int(size) for size in self._shape)
        part = flat[:, : num_rows * self._row_size(span)]
        return part.reshape(len(part), num_rows, *shape, copy=False)

    def _row_size(self, span: int) -> int:
        return prod(span if size == SOURCE else int(size) for size in self._shape)

"""Defines how the states of one kind come, move and grow with the rows they belong to.

Row r of every state is slot r. States of one kind, shape and type (a layer's keys, its values, the
next layer's) are stacked in one array, so that a row moves by one copy, not by one per state.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from serving.arrays import Array
from serving.bundle.manifest import StateSpec
from serving.engine.states.memory import Memory

SPAN_STEP = 16
NEXT = ".next"  # marks the step graph's output of a state


def round_span(num_tokens: int) -> int:
    """Round source tokens up to a span: a multiple of 16, coarser as it grows, at most a quarter
    too long.
    """
    step = max(SPAN_STEP, 1 << max(num_tokens - 1, 0).bit_length() >> 3)
    return -(-num_tokens // step) * step


@dataclass(frozen=True, slots=True)
class RowExtent:
    """Says how much of a row's states is in use, in tokens of the target and of the source."""

    target_tokens: int
    source_tokens: int


@dataclass(frozen=True, slots=True)
class RowPart:
    """Selects part of a row's states: these target positions, so many source tokens, and everything
    that has neither axis.
    """

    positions: slice
    num_source_tokens: int

    @classmethod
    def whole(cls, extent: RowExtent) -> "RowPart":
        return cls(slice(extent.target_tokens), extent.source_tokens)


class Stack:
    """Names the layers of stacked tensors: [states, rows, ...]."""

    def __init__(self, specs: Sequence[StateSpec], memory: Memory) -> None:
        self.names = [spec.name for spec in specs]
        self.shape, self.dtype = specs[0].shape, specs[0].dtype
        self.memory = memory

    def zeros(self, num_rows: int, *shape: int) -> Array:
        return self.memory.zeros((len(self.names), num_rows, *shape), self.dtype)

    def named(self, stacked: Array, suffix: str = "") -> dict[str, Array]:
        return {f"{name}{suffix}": stacked[i] for i, name in enumerate(self.names)}


class States:
    """Holds stacked tensors for every slot; dictionaries are by tensor name.

    A kind owns its buffers and knows which of them is current. What a kind has no use for does
    nothing here.

    differs_between_beams: whether rows of one beam search differ in it.
    span: source positions that its tensors have room for now.
    """

    differs_between_beams = True
    span = SPAN_STEP

    def __init__(self, stack: Stack, current: Array) -> None:
        """Begin with a buffer.

        current: [states, slots, ...], what the step graph reads.
        """
        self._stack, self._memory = stack, stack.memory
        self._current = current

    @property
    def place(self) -> Hashable:
        """Identify where the current buffers are: addresses bound to a graph hold while it is
        equal.
        """
        return None

    @property
    def places(self) -> tuple[Hashable, ...]:
        """List every place there is. Kinds that have the same ones are always in the same one."""
        return (None,)

    def go_to(self, place: Hashable) -> None:
        """Make the buffers of another place the current ones, whatever they hold."""

    def read(self, first: int, last: int) -> dict[str, Array]:
        """Return the step graph's inputs for rows [first, last)."""
        return self._stack.named(self._current[:, first:last])

    def written(self, first: int, last: int) -> dict[str, Array]:
        """Return the step graph's outputs for these rows."""
        return {}

    def scratch(self, num_rows: int, span: int) -> dict[str, Array]:
        """Return where the encode graph writes new rows."""
        return {}

    def admit(self, first: int, num_rows: int, span: int) -> None:
        """Fill new rows from the scratch memory."""

    def part(self, row: int, part: RowPart) -> Array:
        """Return a view of part of what a row holds."""
        return self._current[:, row]

    def flip(self) -> None:
        """Let the next run read what a run over the whole batch has written."""

    def settle(self, row: int) -> None:
        """Let the next run read what a run over this row alone has written."""

    def catch_up(self, row: int, place: Hashable) -> None:
        """Keep what a row held when `place` was current: it took no part in the runs since."""

    def fit_span(self, span: int, num_rows: int) -> None:
        """Make room for sources of another span, keeping the first `num_rows` rows."""

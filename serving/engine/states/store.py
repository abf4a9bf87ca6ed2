"""The state store: every state tensor of every row, and the shapes in which a step runs.

Active rows are always the prefix [0, num_rows), so a graph reads prefix views. The store works with
rows, not with requests.

The CPU runs any shape. On a device all launches of a shape are recorded when the engine starts, so
there are few shapes, and a batch is padded to the next one.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Protocol

from serving.bundle.manifest import LENGTH, SOURCE, Manifest, StateKind, StateSpec
from serving.engine.arrays import Array, storage_type
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
LEAST_COARSE_SPAN = 64


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
    """All states of a bundle, stacked by kind."""

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
        for specs in _group_alike(manifest.states, encoded):
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
        self._double_buffered = [kind for kind in self._kinds if isinstance(kind, ReplaceStates)]

    @property
    def buffer_key(self) -> tuple[Hashable, ...]:
        """Identify the current buffers, see `States.buffer_key`."""
        return tuple([states.buffer_key for states in self._kinds])

    @property
    def span(self) -> int:
        """Return the current number of source positions of every row."""
        return max(states.span for states in self._kinds)

    def inputs(self, first: int, last: int) -> dict[str, Array]:
        return _merge(states.inputs(first, last) for states in self._kinds)

    def outputs(self, first: int, last: int) -> dict[str, Array]:
        return _merge(states.outputs(first, last) for states in self._kinds)

    def encoder_outputs(self, num_rows: int, span: int) -> dict[str, Array]:
        """Return the arrays to which the encode graph writes; the next run overwrites them."""
        return _merge(states.encoder_outputs(num_rows, span) for states in self._kinds)

    def fill_rows(self, first: int, num_rows: int, span: int) -> None:
        """Fill new rows with the encoder's outputs."""
        for states in self._kinds:
            states.fill_rows(first, num_rows, span)

    def views(self, row: int, part: RowPart) -> list[Array]:
        """Return views of part of a row's states, always in the same order."""
        return [states.view(row, part) for states in self._kinds]

    def restore(self, row: int, part: RowPart, saved: Sequence[Array]) -> None:
        """Fill a row with copies of views that `views` returned for any row."""
        for target, content in zip(self.views(row, part), saved, strict=True):
            self.memory.copy(target, content)

    def copy_row(self, source: int, target: int, extent: RowExtent) -> None:
        """Copy all states of a row to another row."""
        part = RowPart.whole(extent)
        self.restore(target, part, self.views(source, part))

    def copy_suffix(self, source: int, target: int, num_shared: int, extent: RowExtent) -> None:
        """Copy a row to another row with the same source and the same first `num_shared` positions:
        these, and the constant states, are not copied.
        """
        part = RowPart(slice(num_shared, extent.target_tokens), 0)
        for states in self._kinds:
            if states.differs_between_beams:
                self.memory.copy(states.view(target, part), states.view(source, part))

    def swap_buffers(self) -> None:
        """Swap buffers after a run over the whole batch, so that the next run reads its outputs."""
        for states in self._double_buffered:
            states.swap()

    def sync_row(self, row: int) -> None:
        """Copy the outputs of a run over this row alone, so that the next run reads them."""
        for states in self._double_buffered:
            states.sync_row(row)

    def sync_row_since(self, row: int, buffer_key: tuple[Hashable, ...]) -> None:
        """Restore the states that a row had when the buffers had this key; it took no part in the
        runs since then.
        """
        for states, old_key in zip(self._kinds, buffer_key, strict=True):
            if isinstance(states, ReplaceStates) and states.buffer_key != old_key:
                states.sync_row(row)

    def fit_span(self, num_source_tokens: int, num_rows: int) -> None:
        """Resize the span of the first `num_rows` rows to the longest source; shrink it when it
        saves time.
        """
        span, old = self._round_span(num_source_tokens), self.span
        if not old >= span > old // 2:
            for states in self._kinds:
                states.fit_span(span, num_rows)

    def iterate_buffers(self) -> Iterator[None]:
        """Select each combination of buffers in turn, then the first again. No row may be in
        use.
        """
        groups: dict[tuple[Hashable, ...], list[States]] = {}
        for states in self._kinds:
            groups.setdefault(states.buffer_keys, []).append(states)
        first = tuple(group[0].buffer_key for group in groups.values())
        for buffer_keys in (*product(*groups), first):
            for group, buffer_key in zip(groups.values(), buffer_keys, strict=True):
                for states in group:
                    states.select_buffer(buffer_key)
            if buffer_keys is not first:
                yield


def _group_alike(specs: Sequence[StateSpec], encoded: set[str]) -> list[list[StateSpec]]:
    groups: dict[tuple[object, ...], list[StateSpec]] = {}
    for spec in specs:
        key = (spec.kind, spec.shape, spec.dtype, spec.name in encoded)
        groups.setdefault(key, []).append(spec)
    return list(groups.values())


def _merge(parts: Iterable[dict[str, Array]]) -> dict[str, Array]:
    return {name: array for part in parts for name, array in part.items()}


@dataclass(frozen=True)
class RowBytes:
    """The bytes of a row's states: fixed, per target position and per source position."""

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


class Coarse:
    """Few shapes: rows are padded by at most a third, spans are powers of two."""

    def rows(self, num_rows: int, slots: int) -> int:
        step = max(1, 1 << (num_rows - 1).bit_length() >> 2)
        return min(-(-num_rows // step) * step, slots)

    def span(self, num_tokens: int, longest: int) -> int:
        return min(max(1 << max(num_tokens - 1, 0).bit_length(), LEAST_COARSE_SPAN), longest)


def all_rows(grid: Grid, slots: int) -> list[int]:
    return sorted({grid.rows(num_rows, slots) for num_rows in range(1, slots + 1)})


def all_spans(grid: Grid, longest: int) -> list[int]:
    return sorted({grid.span(num_tokens, longest) for num_tokens in range(1, longest + 1)})

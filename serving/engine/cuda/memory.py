"""Memory of a CUDA device for state tensors, and the number of rows that fit into it.

Its arrays have numpy's interface, to be sliced, reshaped and bound to a graph. Their contents are
only accessible by copies, which the stream executes in order. Nothing here waits for the device.
The rest of an engine's share of memory stays free for the intermediate results of graphs.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.arrays import Array, storage_type
from serving.engine.config import EngineConfig
from serving.engine.cuda.cuda_runtime import (
    ON_DEVICE,
    TO_DEVICE,
    TO_HOST,
    CudaRuntime,
    Pitched,
    mebibytes,
)
from serving.engine.states.kind import SLACK
from serving.engine.states.memory import CopyPool
from serving.engine.states.store import max_span, row_bytes
from serving.errors import DeviceError

MAX_PITCH = 2**31 - 1  # of a two-dimensional copy
ALIGNMENT = 256  # bytes, as of what CUDA allocates
NUM_SOURCE_BUFFERS = 2  # of states with a source axis
# For intermediate results of graphs, and their recordings.
LEAST_RESERVE, RESERVED_PART = 512 * 2**20, 0.1


class DeviceArray(np.ndarray):
    """Addresses of device memory, with numpy's shapes and strides. Reading an element crashes."""


class CudaMemory:
    def __init__(self, runtime: CudaRuntime) -> None:
        self.runtime = runtime

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros that live as long as the process, like the engine. Raises OutOfMemory."""
        num_bytes = _num_bytes(shape, dtype)
        address = self.runtime.allocate(num_bytes)
        self.runtime.clear(Pitched(address, num_bytes), num_bytes, 1)
        return device_array(address, shape, dtype)

    def pinned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros on the host for asynchronous copies: do not read or write them before a copy
        is finished.
        """
        num_bytes = _num_bytes(shape, dtype)
        address = self.runtime.allocate_pinned(num_bytes)
        ctypes.memset(address, 0, num_bytes)
        return _array_at(address, shape, dtype)

    def copy(self, target: Array, source: Array) -> None:
        """Copy to, from or within the device. A copy of a host array that is not pinned is finished
        when this returns.
        """
        kind = ON_DEVICE
        if not isinstance(source, DeviceArray):
            kind = TO_DEVICE
        elif not isinstance(target, DeviceArray):
            kind = TO_HOST
        for to, from_, rows, num_bytes in copy_blocks(target, source):
            self.runtime.copy(to, from_, num_bytes, rows, kind)

    def clear(self, target: Array) -> None:
        for to, _, rows, num_bytes in copy_blocks(target, target):
            self.runtime.clear(to, num_bytes, rows)

    def pool(self, num_bytes: int) -> CopyPool:
        return DevicePool(self.zeros((num_bytes,), "uint8"), self.copy)

    def mark(self) -> Callable[[], None]:
        """Return a function that waits, once, until all copies and runs so far are finished."""
        return partial(self.runtime.wait, self.runtime.record())

    def synchronize(self) -> None:
        """Wait until all copies and runs so far are finished."""
        self.runtime.synchronize()


def device_array(address: int, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    return _array_at(address, shape, dtype).view(DeviceArray)


def _array_at(address: int, shape: tuple[int, ...], dtype: str) -> Array:
    memory: Any = (ctypes.c_byte * _num_bytes(shape, dtype)).from_address(address)
    return np.ndarray(shape, storage_type(dtype), memory)


def copy_blocks(target: Array, source: Array) -> Iterator[tuple[Pitched, Pitched, int, int]]:
    """Split a copy into few two-dimensional ones: (target, source, rows, bytes per row)."""
    assert target.shape == source.shape, (target.shape, source.shape)
    axes = _merged_axes(target, source)
    row_bytes = target.itemsize
    if axes and axes[-1].strides == (row_bytes, row_bytes):
        row_bytes *= axes.pop().length
    rows = Axis(1, (row_bytes, row_bytes))
    if axes and max(axes[-1].strides) <= MAX_PITCH:
        rows = axes.pop()
    first = [array.__array_interface__["data"][0] for array in (target, source)]
    for index in np.ndindex(*(axis.length for axis in axes)):
        to, from_ = (
            Pitched(
                start + sum(i * axis.strides[side] for i, axis in zip(index, axes, strict=True)),
                rows.strides[side],
            )
            for side, start in enumerate(first)
        )
        yield to, from_, rows.length, row_bytes


@dataclass(frozen=True)
class Axis:
    """An axis of two arrays of one shape. strides: of each, in bytes."""

    length: int
    strides: tuple[int, int]


def _merged_axes(target: Array, source: Array) -> list[Axis]:
    """Return the axes of both arrays, those as one that can be walked as one."""
    merged: list[Axis] = []
    for length, *strides in zip(target.shape, target.strides, source.strides, strict=True):
        axis = Axis(length, (strides[0], strides[1]))
        if length == 1:
            continue
        if merged and merged[-1].strides == tuple(length * stride for stride in axis.strides):
            axis = replace(axis, length=merged.pop().length * length)
        merged.append(axis)
    return merged


def _num_bytes(shape: tuple[int, ...], dtype: str) -> int:
    return max(prod(shape) * storage_type(dtype).itemsize, 1)


class DevicePool:
    """Allocates the first gap that is large enough. A stream orders all copies, so released memory
    can be reused at once.
    """

    def __init__(self, block: Array, copy: Callable[[Array, Array], None]) -> None:
        """block: uint8 [bytes]. copy: (target, source) of one shape and type."""
        self._block, self._copy = block, copy
        self._gaps = [(0, len(block))]  # (start, end), ascending, never touching
        self._taken: dict[int, tuple[int, int]] = {}  # by the identity of a list of copies

    def store(self, views: Sequence[Array]) -> list[Array] | None:
        region = self._take(max(sum(_align(view.nbytes) for view in views), ALIGNMENT))
        if region is None:
            return None
        copies, start = [], region[0]
        for view in views:
            room = self._block[start : start + view.nbytes]
            copies.append(room.view(view.dtype).reshape(view.shape))
            self._copy(copies[-1], view)
            start += _align(view.nbytes)
        self._taken[id(copies)] = region
        return copies

    def release(self, copies: Sequence[Array]) -> None:
        start, end = self._taken.pop(id(copies))
        before = [gap for gap in self._gaps if gap[1] <= start]
        behind = [gap for gap in self._gaps if gap[0] >= end]
        if before and before[-1][1] == start:
            start = before.pop()[0]
        if behind and behind[0][0] == end:
            end = behind.pop(0)[1]
        self._gaps = [*before, (start, end), *behind]

    def _take(self, size: int) -> tuple[int, int] | None:
        for i, (start, end) in enumerate(self._gaps):
            if end - start >= size:
                rest = (start + size, end)
                self._gaps[i : i + 1] = [rest] if rest[0] < rest[1] else []
                return start, start + size
        return None


def _align(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class DeviceBytes:
    """Bytes of a device: the free ones, and the engine's share without its weights."""

    free: int
    share: int


def rows_that_fit(manifest: Manifest, config: EngineConfig, memory: DeviceBytes) -> int:
    """Return the number of rows that fit into memory. Raises DeviceError if not even one fits."""
    available = min(memory.free, memory.share)
    room = available
    room -= max(LEAST_RESERVE, int(room * RESERVED_PART))
    room -= _bytes_of_shared_arrays(manifest, config)
    size = bytes_of_row(manifest)
    if room < size:
        needed = size + available - room
        raise DeviceError(
            f"too little memory on the GPU: {manifest.name} wants {mebibytes(needed)} beside its "
            f"weights for one row, {mebibytes(available)} are there; give it a "
            "larger share (gpus_per_replica), smaller caches, or a GPU with more memory"
        )
    return room // size


def bytes_of_row(manifest: Manifest) -> int:
    """Return the bytes of a row: its states in all their buffers, and its scores."""
    size = row_bytes(manifest.states)
    target_tokens = manifest.limits.max_target_tokens + SLACK
    source_tokens = NUM_SOURCE_BUFFERS * max_span(manifest) if size.per_source_token else 0
    scores = 4 * manifest.vocab_size + 12 * manifest.window
    states = 2 * size.fixed + target_tokens * size.per_target_token
    return states + source_tokens * size.per_source_token + scores


def _bytes_of_shared_arrays(manifest: Manifest, config: EngineConfig) -> int:
    """Return the bytes that are independent of the number of rows: staging rows, encoder outputs,
    cache.
    """
    size = row_bytes(manifest.states)
    if "encode" in manifest.graphs:
        tokens = max(max_span(manifest), config.max_encode_tokens)
        return tokens * size.per_source_token + config.encoder_cache_bytes
    return 2 * bytes_of_row(manifest) + config.prefix_cache_bytes

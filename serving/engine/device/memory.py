"""Gives state tensors memory of a CUDA device.

Arrays of it look like numpy's, to be sliced, reshaped and bound to a graph; what is in them is
reached by copies alone, which the stream makes in its order. Nothing here waits for the device.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np

from serving.arrays import Array, storage_type
from serving.engine.device.pool import DevicePool
from serving.engine.device.runtime import ON_DEVICE, TO_DEVICE, TO_HOST, CudaRuntime, Pitched
from serving.engine.states.memory import Pool

MAX_PITCH = 2**31 - 1  # of a two-dimensional copy


class DeviceArray(np.ndarray):
    """Holds addresses of device memory, with numpy's shapes and strides. Reading one crashes."""


class CudaMemory:
    def __init__(self, runtime: CudaRuntime) -> None:
        self.runtime = runtime

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros that are kept for the life of the process, as an engine is. Raises
        OutOfMemory.
        """
        num_bytes = _num_bytes(shape, dtype)
        address = self.runtime.allocate(num_bytes)
        self.runtime.clear(Pitched(address, num_bytes), num_bytes, 1)
        return device_array(address, shape, dtype)

    def pinned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros of the host that the device copies to and from at its own time: do not
        write, or read, before such a copy is done.
        """
        num_bytes = _num_bytes(shape, dtype)
        address = self.runtime.allocate_pinned(num_bytes)
        ctypes.memset(address, 0, num_bytes)
        return _array_at(address, shape, dtype)

    def copy(self, target: Array, source: Array) -> None:
        """Copy to, from or within the device. Of an array of the host that is not pinned, the copy
        is made when this returns.
        """
        kind = ON_DEVICE
        if not isinstance(source, DeviceArray):
            kind = TO_DEVICE
        elif not isinstance(target, DeviceArray):
            kind = TO_HOST
        for to, from_, rows, row_bytes in copy_blocks(target, source):
            self.runtime.copy(to, from_, row_bytes, rows, kind)

    def clear(self, target: Array) -> None:
        for to, _, rows, row_bytes in copy_blocks(target, target):
            self.runtime.clear(to, row_bytes, rows)

    def pool(self, num_bytes: int) -> Pool:
        return DevicePool(self.zeros((num_bytes,), "uint8"), self.copy)

    def mark(self) -> Callable[[], None]:
        """Return a call that waits, once, until all copies and runs up to now are done."""
        return partial(self.runtime.wait, self.runtime.record())

    def synchronize(self) -> None:
        """Wait until all copies and runs so far are done."""
        self.runtime.synchronize()


def device_array(address: int, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    return _array_at(address, shape, dtype).view(DeviceArray)


def _array_at(address: int, shape: tuple[int, ...], dtype: str) -> Array:
    memory: Any = (ctypes.c_byte * _num_bytes(shape, dtype)).from_address(address)
    return np.ndarray(shape, storage_type(dtype), memory)


def copy_blocks(target: Array, source: Array) -> Iterator[tuple[Pitched, Pitched, int, int]]:
    """Cut a copy into two-dimensional ones: (target, source, rows, bytes per row)."""
    assert target.shape == source.shape, (target.shape, source.shape)
    inner = target.ndim
    row_bytes = target.itemsize
    while inner and target.strides[inner - 1] == source.strides[inner - 1] == row_bytes:
        inner -= 1
        row_bytes *= target.shape[inner]
    outer = max(inner - 1, 0)
    if inner and max(target.strides[outer], source.strides[outer]) > MAX_PITCH:
        outer = inner  # row by row
    rows = prod(target.shape[outer:inner])
    for index in np.ndindex(target.shape[:outer]):
        to, from_ = (_pitched(array, index, rows, row_bytes) for array in (target, source))
        yield to, from_, rows, row_bytes


def _pitched(array: Array, index: tuple[int, ...], rows: int, row_bytes: int) -> Pitched:
    offset = sum(i * stride for i, stride in zip(index, array.strides, strict=False))
    pitch = array.strides[len(index)] if rows > 1 else row_bytes
    return Pitched(array.__array_interface__["data"][0] + offset, pitch)


def _num_bytes(shape: tuple[int, ...], dtype: str) -> int:
    return max(prod(shape) * storage_type(dtype).itemsize, 1)

"""Gives state tensors memory: zeroed arrays, and copies between them.

Host and device memory look alike to the rest of the engine: both are numpy arrays that it slices,
reshapes and hands to a graph. Only `copy` and `clear` touch what is in them, because the pages of a
`DeviceArray` are not the host's.
"""

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from mmap import MADV_NOHUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Protocol

import numpy as np

from serving.arrays import Array
from serving.errors import DeviceError


class Memory(Protocol):
    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array: ...

    def copy(self, target: Array, source: Array) -> None:
        """Copy between arrays of one shape that do not overlap."""

    def clear(self, target: Array) -> None: ...


class HostMemory:
    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros in small pages, which cost nothing until they are written. numpy asks for
        huge ones, of 2 MiB: a row of SmolLM2 then costs 377 MB with its first token, as each of its
        180 keys and values of a head begins another one.
        """
        num_values = prod(shape)
        num_bytes = max(num_values * np.dtype(dtype).itemsize, 1)
        pages = mmap(-1, num_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        with suppress(OSError):  # of a kernel that has no huge pages
            pages.madvise(MADV_NOHUGEPAGE)
        return np.frombuffer(pages, dtype, num_values).reshape(shape)

    def copy(self, target: Array, source: Array) -> None:
        target[...] = source

    def clear(self, target: Array) -> None:
        target[...] = 0


class DeviceArray(np.ndarray):
    """Holds addresses of device memory, with numpy's shapes and strides. Reading one crashes."""


class CudaMemory:
    """Allocates CUDA device memory through the library that onnxruntime-gpu has loaded."""

    def __init__(self, runtime: Any = None) -> None:
        """Load the library.

        runtime: stands in for the library's functions, in tests.
        """
        self._cuda = runtime or _load_runtime()

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros that are kept for the life of the process, as an engine is."""
        address = ctypes.c_void_p()
        num_bytes = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
        self._check(self._cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(num_bytes)))
        self._check(self._cuda.cudaMemset(address, 0, ctypes.c_size_t(num_bytes)))
        return device_array(address.value or 0, shape, dtype)

    def copy(self, target: Array, source: Array) -> None:
        for to, from_, rows, row_bytes in copy_blocks(target, source):
            self._check(
                self._cuda.cudaMemcpy2D(
                    ctypes.c_void_p(to[0]),
                    ctypes.c_size_t(to[1]),
                    ctypes.c_void_p(from_[0]),
                    ctypes.c_size_t(from_[1]),
                    ctypes.c_size_t(row_bytes),
                    ctypes.c_size_t(rows),
                    3,  # cudaMemcpyDeviceToDevice
                )
            )
        self._check(self._cuda.cudaDeviceSynchronize())

    def clear(self, target: Array) -> None:
        for (address, pitch), _, rows, row_bytes in copy_blocks(target, target):
            self._check(
                self._cuda.cudaMemset2D(
                    ctypes.c_void_p(address),
                    ctypes.c_size_t(pitch),
                    0,
                    ctypes.c_size_t(row_bytes),
                    ctypes.c_size_t(rows),
                )
            )
        self._check(self._cuda.cudaDeviceSynchronize())

    def _check(self, status: int) -> None:
        if status != 0:
            self._cuda.cudaGetErrorString.restype = ctypes.c_char_p
            raise DeviceError(f"CUDA: {self._cuda.cudaGetErrorString(status).decode()}")


def device_array(address: int, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    num_bytes = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
    memory: Any = (ctypes.c_byte * num_bytes).from_address(address)
    return np.ndarray(shape, dtype, memory).view(DeviceArray)


Pitched = tuple[int, int]  # address and bytes between rows


def copy_blocks(target: Array, source: Array) -> Iterator[tuple[Pitched, Pitched, int, int]]:
    """Cut a copy into two-dimensional ones: (target, source, rows, bytes per row)."""
    assert target.shape == source.shape, (target.shape, source.shape)
    inner = target.ndim
    row_bytes = target.itemsize
    while inner and target.strides[inner - 1] == source.strides[inner - 1] == row_bytes:
        inner -= 1
        row_bytes *= target.shape[inner]
    rows = target.shape[inner - 1] if inner else 1
    outer = max(inner - 1, 0)
    for index in np.ndindex(target.shape[:outer]):
        yield _pitched(target, index, inner), _pitched(source, index, inner), rows, row_bytes


def _pitched(array: Array, index: tuple[int, ...], inner: int) -> Pitched:
    offset = sum(i * stride for i, stride in zip(index, array.strides, strict=False))
    address = array.__array_interface__["data"][0] + offset
    return address, array.strides[inner - 1] if inner else array.nbytes


def _load_runtime() -> Any:
    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError("the CUDA runtime library (libcudart) is not installed")

"""Gives state tensors memory: zeroed arrays, and copies between them.

Host and device memory look alike to the rest of the engine: both are numpy arrays that it slices,
reshapes and hands to a graph. Only `copy` and `clear` touch what is in them: that of a device lies
elsewhere (`serving.engine.device.memory`).
"""

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from mmap import MADV_NOHUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Protocol

import numpy as np

from serving.arrays import Array


class Memory(Protocol):
    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array: ...

    def copy(self, target: Array, source: Array) -> None:
        """Copy between arrays of one shape that do not overlap."""

    def clear(self, target: Array) -> None: ...

    def pool(self, num_bytes: int) -> "Pool":
        """Return room for copies that come and go, of this size in all."""


class Pool(Protocol):
    """Holds copies of states. It may not hold all that its size says: there may be gaps."""

    def keep(self, parts: Sequence[Array]) -> list[Array] | None:
        """Return copies, or None where there is no room for them."""

    def forget(self, kept: Sequence[Array]) -> None:
        """Give back the room of what `keep` has returned; nobody reads it any more."""


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

    def pool(self, num_bytes: int) -> Pool:
        return HostPool()


class HostPool:
    """Leaves it to whoever keeps copies how many there are."""

    def keep(self, parts: Sequence[Array]) -> list[Array] | None:
        return [part.copy() for part in parts]

    def forget(self, kept: Sequence[Array]) -> None:
        """Leave it to Python."""

"""Memory for state tensors: zeroed arrays, copies between them, and a cache of states.

Host and device memory look alike to the rest of the engine: both are numpy arrays that it slices,
reshapes and binds to a graph. Only `copy` and `clear` touch their contents, which for a device lie
elsewhere (`serving.engine.cuda.memory`). Cached copies lie in the same memory as the states.
"""

import threading
from collections import OrderedDict
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


TokenIds = Sequence[int] | Array


class StateCache:
    """Keeps copies of states by the tokens they come from; those used last stay.

    Tokens are compared whole: equal hashes alone are no hit. What is kept must depend on nothing
    but them, so that a hit gives the bytes of a miss. Engines on several threads may share one.
    """

    def __init__(self, max_bytes: int, memory: Memory) -> None:
        self._max_bytes = max_bytes
        self._pool = memory.pool(max_bytes)
        self._num_bytes = 0
        self._kept: OrderedDict[bytes, list[Array]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        return self._max_bytes > 0

    def get(self, token_ids: TokenIds) -> list[Array] | None:
        key = _key(token_ids)
        with self._lock:
            parts = self._kept.get(key)
            if parts is not None:
                self._kept.move_to_end(key)
            return parts

    def put(self, token_ids: TokenIds, parts: Sequence[Array]) -> None:
        """Keep copies of these parts, if they fit. What `get` gave before is not to be read after
        this: its room may have been given to them.
        """
        key = _key(token_ids)
        num_bytes = _num_bytes(key, parts)
        with self._lock:
            if num_bytes > self._max_bytes or key in self._kept:
                return
            while self._num_bytes + num_bytes > self._max_bytes:
                self._forget_oldest()
            while (copies := self._pool.keep(parts)) is None:
                if not self._kept:
                    return
                self._forget_oldest()
            self._kept[key] = copies
            self._num_bytes += num_bytes

    def _forget_oldest(self) -> None:
        key, parts = self._kept.popitem(last=False)
        self._pool.forget(parts)
        self._num_bytes -= _num_bytes(key, parts)


def _key(token_ids: TokenIds) -> bytes:
    return np.asarray(token_ids, np.int32).tobytes()


def _num_bytes(key: bytes, parts: Sequence[Array]) -> int:
    return len(key) + sum(part.nbytes for part in parts)

"""Memory for state tensors: zeroed arrays, copies between them, and a cache of states.

Host and device memory have the same interface: numpy arrays that can be sliced, reshaped and bound
to a graph. Only `copy` and `clear` read or write their contents, which may lie on a device
(`serving.engine.cuda.memory`). Cached copies are stored in the same memory as the states.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from mmap import MADV_NOHUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Protocol, runtime_checkable

import numpy as np

from serving.engine.arrays import Array
from serving.requests.request import Media


class Memory(Protocol):
    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array: ...

    def copy(self, target: Array, source: Array) -> None:
        """Copy between arrays of one shape that do not overlap."""

    def clear(self, target: Array) -> None: ...

    def pool(self, num_bytes: int) -> "CopyPool":
        """Return a pool for temporary copies with this total size."""


class CopyPool(Protocol):
    """Stores copies of states. Because of gaps it may store less than its size."""

    def store(self, views: Sequence[Array]) -> list[Array] | None:
        """Return copies, or None if there is no room for them."""

    def release(self, copies: Sequence[Array]) -> None:
        """Release the room of copies that `store` has returned; they must not be read any more."""


@runtime_checkable
class StreamMemory(Memory, Protocol):
    """Memory of a device that executes all copies and runs asynchronously, in order; `copy` also
    copies from and to the host.
    """

    def pinned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros on the host for asynchronous copies: they must not change before a copy is
        finished.
        """

    def mark(self) -> Callable[[], None]:
        """Return a function that waits until all work enqueued so far is finished."""


class HostMemory:
    def zeros(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeros in small pages, which use no memory until they are written. numpy requests
        huge pages of 2 MiB: with these, a row of SmolLM2 would use 377 MB at its first token,
        because each of its 180 keys and values of a head starts another page.
        """
        num_values = prod(shape)
        num_bytes = max(num_values * np.dtype(dtype).itemsize, 1)
        pages = mmap(-1, num_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        with suppress(OSError):  # the kernel may have no huge pages
            pages.madvise(MADV_NOHUGEPAGE)
        return np.frombuffer(pages, dtype, num_values).reshape(shape)

    def copy(self, target: Array, source: Array) -> None:
        target[...] = source

    def clear(self, target: Array) -> None:
        target[...] = 0

    def pool(self, num_bytes: int) -> CopyPool:
        return HostPool()


class HostPool:
    """Allocates copies without a limit; the cache limits their number."""

    def store(self, views: Sequence[Array]) -> list[Array] | None:
        return [view.copy() for view in views]

    def release(self, copies: Sequence[Array]) -> None:
        """Do nothing: Python releases the memory."""


Input = Sequence[int] | Array | Media


class StateCache:
    """A least-recently-used cache of states by the tokens, the picture or the sound that they were
    computed from.

    Tokens are compared completely; equal hashes are not enough. Cached states must depend on these
    tokens only, so that a hit gives the same bytes as a miss. Engines on several threads may share
    a cache.
    """

    def __init__(self, max_bytes: int, memory: Memory) -> None:
        self._max_bytes = max_bytes
        self._pool = memory.pool(max_bytes)
        self._num_bytes = 0
        self._entries: OrderedDict[bytes, list[Array]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        return self._max_bytes > 0

    def get(self, source: Input) -> list[Array] | None:
        key = _cache_key(source)
        with self._lock:
            copies = self._entries.get(key)
            if copies is not None:
                self._entries.move_to_end(key)
            return copies

    def put(self, source: Input, views: Sequence[Array]) -> None:
        """Store copies of these views, if they fit. Results of earlier `get` calls must not be read
        after this, because their memory may be reused.
        """
        key = _cache_key(source)
        num_bytes = _num_bytes(key, views)
        with self._lock:
            if num_bytes > self._max_bytes or key in self._entries:
                return
            while self._num_bytes + num_bytes > self._max_bytes:
                self._evict_oldest()
            while (copies := self._pool.store(views)) is None:
                if not self._entries:
                    return
                self._evict_oldest()
            self._entries[key] = copies
            self._num_bytes += num_bytes

    def _evict_oldest(self) -> None:
        key, copies = self._entries.popitem(last=False)
        self._pool.release(copies)
        self._num_bytes -= _num_bytes(key, copies)


def _cache_key(source: Input) -> bytes:
    if isinstance(source, Media):
        return source.content
    return np.asarray(source, np.int32).tobytes()


def _num_bytes(key: bytes, arrays: Sequence[Array]) -> int:
    return len(key) + sum(array.nbytes for array in arrays)

"""Keeps states that need not be computed again, within a bound of bytes.

Copies of states, made in host memory. On device cuda caches are off: a copy would have to lie in
device memory, which is never given back (`CudaMemory.zeros`), so it could not be bounded.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from serving.arrays import Array

TokenIds = Sequence[int] | Array


class StateCache:
    """Keeps copies of states by the tokens they come from; those used last stay.

    Tokens are compared whole: equal hashes alone are no hit. What is kept must depend on nothing
    but them, so that a hit gives the bytes of a miss. Engines on several threads may share one.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
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
        """Keep copies of these parts, if they fit."""
        key = _key(token_ids)
        num_bytes = _num_bytes(key, parts)
        with self._lock:
            if num_bytes > self._max_bytes or key in self._kept:
                return
            while self._num_bytes + num_bytes > self._max_bytes:
                self._num_bytes -= _num_bytes(*self._kept.popitem(last=False))
            self._kept[key] = [part.copy() for part in parts]
            self._num_bytes += num_bytes


def _key(token_ids: TokenIds) -> bytes:
    return np.asarray(token_ids, np.int32).tobytes()


def _num_bytes(key: bytes, parts: Sequence[Array]) -> int:
    return len(key) + sum(part.nbytes for part in parts)

"""Keeps states that need not be computed again, within a bound of bytes.

Copies lie where the states do: those of a device in a pool of its memory, set aside at the start.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from serving.arrays import Array
from serving.engine.states.memory import Memory

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

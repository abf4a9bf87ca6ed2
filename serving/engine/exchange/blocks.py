"""Lays small arrays end to end, so that one copy brings all of them to a device or back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np

from serving.arrays import Array
from serving.engine.states.memory import Memory

ALIGNMENT = 16  # bytes
NUM_TURNS = 2  # one run is launched while the one before it is awaited


@runtime_checkable
class StreamMemory(Memory, Protocol):
    """Memory of a device that does all it is asked, copies and runs, in that order and in its own
    time; `copy` also copies from and to the host.
    """

    def pinned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return zeroed memory of the host, which copies reach in their turn: it must not change
        until they are done.
        """

    def mark(self) -> Callable[[], None]:
        """Return a call that waits until all that was asked so far is done."""


@dataclass(frozen=True, slots=True)
class Field:
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class Block:
    """Holds arrays by name on the device, and twice on the host: those of a run may still be on
    their way when the next run's are written.
    """

    def __init__(self, memory: StreamMemory, fields: Mapping[str, Field]) -> None:
        self._memory = memory
        self._starts: dict[str, int] = {}
        size = 0
        for name, field in fields.items():
            self._starts[name] = size
            size += -(-field.num_bytes // ALIGNMENT) * ALIGNMENT
        self._on_device = memory.zeros((size,), "uint8")
        self._on_host = [memory.pinned((size,), "uint8") for _ in range(NUM_TURNS)]
        self.device = self._arrays(fields, self._on_device)
        self.host = [self._arrays(fields, each) for each in self._on_host]

    def upload(self, turn: int, first: str) -> None:
        """Bring arrays to the device, from this one on."""
        start = self._starts[first]
        self._memory.copy(self._on_device[start:], self._on_host[turn][start:])

    def download(self, turn: int) -> None:
        self._memory.copy(self._on_host[turn], self._on_device)

    def _arrays(self, fields: Mapping[str, Field], flat: Array) -> dict[str, Array]:
        return {
            name: flat[start : start + field.num_bytes].view(field.dtype).reshape(field.shape)
            for (name, field), start in zip(fields.items(), self._starts.values(), strict=True)
        }

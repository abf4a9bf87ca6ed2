"""Arrays on the device with their counterparts on the host, copied all at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from serving.engine.arrays import Array
from serving.engine.states.memory import StreamMemory

ALIGNMENT = 16  # bytes
NUM_HOST_BUFFERS = 2  # one run is launched before the previous one is finished


@dataclass(frozen=True, slots=True)
class ArraySpec:
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class TransferBuffer:
    """Arrays by name on the device, and twice on the host: copies of one run may still be in
    progress when the arrays of the next run are written.

    buffer_index, of the methods: which of the two on the host.
    """

    def __init__(self, memory: StreamMemory, specs: Mapping[str, ArraySpec]) -> None:
        self._memory = memory
        self._starts: dict[str, int] = {}
        size = 0
        for name, spec in specs.items():
            self._starts[name] = size
            size += -(-spec.num_bytes // ALIGNMENT) * ALIGNMENT
        self._on_device = memory.zeros((size,), "uint8")
        self._on_host = [memory.pinned((size,), "uint8") for _ in range(NUM_HOST_BUFFERS)]
        self.device = self._arrays(specs, self._on_device)
        self.host = [self._arrays(specs, array) for array in self._on_host]

    def upload(self, buffer_index: int, first: str) -> None:
        """Copy arrays to the device, from the one named `first` on."""
        start = self._starts[first]
        self._memory.copy(self._on_device[start:], self._on_host[buffer_index][start:])

    def download(self, buffer_index: int) -> None:
        self._memory.copy(self._on_host[buffer_index], self._on_device)

    def _arrays(self, specs: Mapping[str, ArraySpec], flat: Array) -> dict[str, Array]:
        return {
            name: flat[start : start + spec.num_bytes].view(spec.dtype).reshape(spec.shape)
            for (name, spec), start in zip(specs.items(), self._starts.values(), strict=True)
        }

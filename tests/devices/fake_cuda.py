"""The CUDA runtime's functions over memory of the host, for machines without a GPU.

    library = FakeCuda(num_bytes=2**20)
    memory = CudaMemory(CudaRuntime(library))

It does as little as it may: copies and runs stay on their stream until somebody waits, so that
whoever forgets to wait reads what was there before. As CUDA has it, copies from memory that is not
pinned are taken at once, and copies to it are waited for. Beyond `num_bytes` it has no memory.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import numpy as np

from serving.engine.arrays import Array
from serving.engine.cuda.cuda_runtime import (
    NO_DEVICE,
    OUT_OF_MEMORY,
    TO_DEVICE,
    TO_HOST,
    CudaRuntime,
)
from serving.engine.cuda.memory import CudaMemory, DeviceArray
from serving.engine.runtime.graph import Graph, Run
from serving.errors import OutOfMemory

INVALID_VALUE = 1
TEXTS = {
    INVALID_VALUE: "invalid argument",
    OUT_OF_MEMORY: "out of memory",
    NO_DEVICE: "no CUDA-capable device is detected",
    700: "an illegal memory access was encountered",
}


@dataclass
class FakeCuda:
    """num_devices: how many GPUs there are. status: what counting them returns. failure: what
    everything returns that waits.
    """

    num_bytes: int = 2**30
    num_devices: int = 1
    status: int = 0
    failure: int = 0
    num_used: int = 0
    num_pinned: int = 0
    waits: int = 0
    kept: dict[int, Any] = field(default_factory=dict)
    pinned: list[tuple[int, int]] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)
    events: dict[int, int] = field(default_factory=dict)

    def cudaGetDeviceCount(self, count: Any) -> int:
        count._obj.value = self.num_devices
        return self.status or (0 if self.num_devices else NO_DEVICE)

    def cudaGetLastError(self) -> int:
        return 0

    @property
    def cudaGetErrorString(self) -> "ErrorTexts":
        return ErrorTexts()

    def cudaStreamCreateWithFlags(self, stream: Any, flags: int) -> int:
        stream._obj.value = 77
        return 0

    def cudaMemGetInfo(self, free: Any, total: Any) -> int:
        free._obj.value, total._obj.value = self.num_bytes - self.num_used, self.num_bytes
        return 0

    def cudaMalloc(self, address: Any, num_bytes: ctypes.c_size_t) -> int:
        if self.num_used + num_bytes.value > self.num_bytes:
            return OUT_OF_MEMORY
        self.num_used += num_bytes.value
        address._obj.value = self._keep(num_bytes.value)
        return 0

    def cudaMallocHost(self, address: Any, num_bytes: ctypes.c_size_t) -> int:
        address._obj.value = self._keep(num_bytes.value)
        self.pinned.append((address._obj.value, address._obj.value + num_bytes.value))
        return 0

    def cudaMemcpy2DAsync(
        self, to: Any, to_pitch: Any, of: Any, of_pitch: Any, width: Any, height: Any, *rest: Any
    ) -> int:
        kind, _ = rest  # and the stream
        rows, size = height.value, width.value
        if rows and size > min(to_pitch.value, of_pitch.value):
            return INVALID_VALUE
        pairs = [
            (to.value + row * to_pitch.value, of.value + row * of_pitch.value)
            for row in range(rows)
        ]
        if kind == TO_DEVICE and not self._is_pinned(of.value):
            contents = [ctypes.string_at(source, size) for _, source in pairs]
            self.waiting.append(lambda: _write([target for target, _ in pairs], contents))
            return 0
        self.waiting.append(lambda: _move(pairs, size))
        return self._finish() if kind == TO_HOST and not self._is_pinned(to.value) else 0

    def cudaMemset2DAsync(
        self, to: Any, pitch: Any, value: int, width: Any, height: Any, stream: Any
    ) -> int:
        rows = [to.value + row * pitch.value for row in range(height.value)]
        self.waiting.append(lambda: _write(rows, [bytes([value]) * width.value] * len(rows)))
        return 0

    def cudaStreamSynchronize(self, stream: Any) -> int:
        self.waits += 1
        return self._finish()

    def cudaEventCreateWithFlags(self, event: Any, flags: int) -> int:
        event._obj.value = len(self.events) + 1
        return 0

    def cudaEventRecord(self, event: Any, stream: Any) -> int:
        self.events[event.value] = len(self.waiting)
        return 0

    def cudaEventSynchronize(self, event: Any) -> int:
        return self._finish(self.events[event.value])

    def cudaEventDestroy(self, event: Any) -> int:
        return 0

    def cudaStreamEndCapture(self, stream: Any, graph: Any) -> int:
        return 0

    def launch(self, function: Callable[[], None]) -> None:
        """Put a run on the stream."""
        self.waiting.append(function)

    def _finish(self, count: int | None = None) -> int:
        if self.failure:
            return self.failure
        count = len(self.waiting) if count is None else count
        done, self.waiting = self.waiting[:count], self.waiting[count:]
        self.events = {event: max(place - count, 0) for event, place in self.events.items()}
        for each in done:
            each()
        return 0

    def _keep(self, num_bytes: int) -> int:
        buffer = ctypes.create_string_buffer(b"\x7f" * num_bytes, num_bytes)  # not zeros
        address = ctypes.addressof(buffer)
        self.kept[address] = buffer
        return address

    def _is_pinned(self, address: int) -> bool:
        return any(start <= address < end for start, end in self.pinned)


class ErrorTexts:
    restype: Any = None

    def __call__(self, status: int) -> bytes:
        return TEXTS.get(status, f"error {status}").encode()


@dataclass
class FakeDeviceGraph:
    """Runs a graph of the host on a fake device's stream, over what is bound in its memory."""

    library: FakeCuda
    graph: Graph
    num_recorded: int = 0
    most_recordings: int | None = None
    host_inputs: frozenset[str] = frozenset()

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        bound = {**inputs, **outputs}
        on_host = {name for name, array in bound.items() if not isinstance(array, DeviceArray)}
        assert on_host == self.host_inputs & bound.keys(), "what is not where it is read"
        run = self.graph.bind(
            {name: _plain(array) for name, array in inputs.items()},
            {name: _plain(array) for name, array in outputs.items()},
        )
        return lambda: self.library.launch(run)

    def record(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Recordings are for the thread that makes them. No more than `most_recordings` can be."""
        if self.num_recorded == self.most_recordings:
            raise OutOfMemory("the GPU's memory is full")
        thread = get_ident()
        run = self.bind(inputs, outputs)
        run()

        def replay() -> None:
            assert get_ident() == thread
            run()

        self.num_recorded += 1
        return replay


def fake_memory(num_bytes: int = 2**30) -> tuple[FakeCuda, CudaMemory]:
    library = FakeCuda(num_bytes)
    return library, CudaMemory(CudaRuntime(library))


def _plain(array: Array) -> Array:
    return array.view(np.ndarray)


def _write(targets: list[int], rows: list[bytes]) -> None:
    for target, row in zip(targets, rows, strict=True):
        ctypes.memmove(target, row, len(row))


def _move(pairs: list[tuple[int, int]], size: int) -> None:
    for target, source in pairs:
        ctypes.memmove(target, source, size)

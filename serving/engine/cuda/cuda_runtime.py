"""Bindings to the CUDA runtime library by ctypes: memory, copies on one stream, events.

All work of an engine, including graphs, runs on one stream, in order. So the host waits only when
it reads results (`synchronize`). The library is the one that onnxruntime-gpu has loaded.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

from serving.errors import DeviceError, OutOfMemory

LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
OUT_OF_MEMORY, INSUFFICIENT_DRIVER, NO_DEVICE = 2, 35, 100  # of cudaError_t
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3  # of cudaMemcpyKind
_NON_BLOCKING, _NO_TIMING = 1, 2  # of streams; of events
_ADVICE = {
    INSUFFICIENT_DRIVER: "the NVIDIA driver is too old for this CUDA; update the driver",
    NO_DEVICE: "no GPU is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES",
}


@dataclass(frozen=True, slots=True)
class Pitched:
    """Rows in memory: the address of the first one, and the number of bytes from one row to the
    next.
    """

    address: int
    pitch: int


class CudaRuntime:
    """The library and the stream of one engine, on the first visible device."""

    def __init__(self, library: Any = None) -> None:
        """Make the stream. Raises DeviceError if there is no working device.

        library: replaces the CUDA library in tests.
        """
        self._cuda = library or load_library()
        check_devices(self._cuda)
        stream = ctypes.c_void_p()
        self._check(self._cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), _NON_BLOCKING))
        self.stream = stream.value or 0

    def allocate(self, num_bytes: int) -> int:
        """Return the address of device memory. Raises OutOfMemory."""
        address = ctypes.c_void_p()
        status = self._cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(num_bytes))
        if status == OUT_OF_MEMORY:
            self._cuda.cudaGetLastError()  # else the next call would report it again
            free, total = self.memory()
            problem = f"{mebibytes(num_bytes)} wanted, {mebibytes(free)} of {mebibytes(total)} free"
            raise OutOfMemory(f"the GPU's memory is full: {problem}")
        self._check(status)
        return address.value or 0

    def allocate_pinned(self, num_bytes: int) -> int:
        """Return the address of pinned host memory, from which the device can copy directly."""
        address = ctypes.c_void_p()
        size = ctypes.c_size_t(num_bytes)
        self._check(self._cuda.cudaMallocHost(ctypes.byref(address), size))
        return address.value or 0

    def memory(self) -> tuple[int, int]:
        """Return the free and the total bytes of the device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self._cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
        return free.value, total.value

    def copy(
        self, target: Pitched, source: Pitched, row_bytes: int, num_rows: int, kind: int
    ) -> None:
        """Enqueue a copy of rows. kind: TO_DEVICE, TO_HOST or ON_DEVICE."""
        status = self._cuda.cudaMemcpy2DAsync(
            ctypes.c_void_p(target.address),
            ctypes.c_size_t(target.pitch),
            ctypes.c_void_p(source.address),
            ctypes.c_size_t(source.pitch),
            ctypes.c_size_t(row_bytes),
            ctypes.c_size_t(num_rows),
            kind,
            ctypes.c_void_p(self.stream),
        )
        self._check(status)

    def clear(self, target: Pitched, row_bytes: int, num_rows: int) -> None:
        """Enqueue writing zeros."""
        status = self._cuda.cudaMemset2DAsync(
            ctypes.c_void_p(target.address),
            ctypes.c_size_t(target.pitch),
            0,
            ctypes.c_size_t(row_bytes),
            ctypes.c_size_t(num_rows),
            ctypes.c_void_p(self.stream),
        )
        self._check(status)

    def synchronize(self) -> None:
        """Wait until all enqueued work is finished."""
        self._check(self._cuda.cudaStreamSynchronize(ctypes.c_void_p(self.stream)))

    def end_recording(self) -> None:
        """Reset the stream after ONNX Runtime has failed to record."""
        graph = ctypes.c_void_p()
        self._cuda.cudaStreamEndCapture(ctypes.c_void_p(self.stream), ctypes.byref(graph))
        self._cuda.cudaGetLastError()  # else the next call would report it again

    def record(self) -> ctypes.c_void_p:
        """Return an event that occurs when all work enqueued so far is finished."""
        event = ctypes.c_void_p()
        self._check(self._cuda.cudaEventCreateWithFlags(ctypes.byref(event), _NO_TIMING))
        self._check(self._cuda.cudaEventRecord(event, ctypes.c_void_p(self.stream)))
        return event

    def wait(self, event: ctypes.c_void_p) -> None:
        """Wait for an event, once; work enqueued after it is not waited for."""
        self._check(self._cuda.cudaEventSynchronize(event))
        self._check(self._cuda.cudaEventDestroy(event))

    def _check(self, status: int) -> None:
        if status != 0:
            raise DeviceError(f"CUDA: {error_text(self._cuda, status)}")


def load_library() -> Any:
    """Raises DeviceError if the library is not installed."""
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError(
        "the CUDA runtime library (libcudart) is missing; install attendant-server[gpu]"
    )


def check_devices(cuda: Any) -> int:
    """Return the number of devices. Raises DeviceError if this library can use none."""
    count = ctypes.c_int()
    status = cuda.cudaGetDeviceCount(ctypes.byref(count))
    if status == 0 and count.value > 0:
        return count.value
    status = status or NO_DEVICE
    raise DeviceError(f"device cuda: {_ADVICE.get(status) or error_text(cuda, status)}")


def error_text(cuda: Any, status: int) -> str:
    cuda.cudaGetErrorString.restype = ctypes.c_char_p
    return str(cuda.cudaGetErrorString(status).decode())


def mebibytes(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"

"""Graphs on a device: bind device memory to ONNX Runtime sessions, and record CUDA graphs.

ONNX Runtime records by the number `gpu_graph_id` in the options of a run. The first runs with a
number are made until no more memory is allocated, then the run is recorded; later runs replay the
recording and ignore the binding. So each recording has its own binding and number; -1 is never
recorded. Recordings belong to a thread, and no other thread may allocate device memory meanwhile:
all are made while an engine starts.

ONNX Runtime copies host arrays when they are bound, not when it runs. So host arrays have mirrors
on the device, which are bound instead and copied before and after each run.
"""

from collections.abc import Callable, Set
from typing import Any, Protocol

import numpy as np

from serving.engine.arrays import Array
from serving.engine.cuda.memory import CudaMemory, DeviceArray
from serving.engine.runtime.graph import RecordingGraph, Run, memory_location
from serving.errors import AttendantError, DeviceError, OutOfMemory

BFLOAT16 = 16  # of ONNX's element types; numpy has no such type
NOT_RECORDED = -1
MakeOptions = Callable[[dict[str, str]], object]
Pair = tuple[Array, Array]  # an array of the host, and its copy on the device
# Parts of ONNX Runtime's error messages.
_FULL = ("Failed to allocate memory", "out of memory", "ALLOC_FAILED")
_BROKEN = ("CUDA failure", "CUDA error", "CUBLAS failure", "CUDNN failure")


class DeviceGraph:
    """A session whose runs are enqueued on the engine's stream; nothing here waits for them.

    host_inputs: inputs that operators read on the host, such as the lengths of ONNX Runtime's GRU
        and LSTM. Of an array on the device, ONNX Runtime would bind a copy that is made only once.
    """

    def __init__(self, session: Any, make_options: MakeOptions, device: str = "cuda") -> None:
        """make_options: makes the options of a run from configuration entries.
        device: whose memory the arrays are in.
        """
        self._session, self._make_options, self._device = session, make_options, device
        self._bfloat16 = {
            tensor.name
            for tensor in (*session.get_inputs(), *session.get_outputs())
            if tensor.type == "tensor(bfloat16)"
        }
        self.host_inputs = frozenset(
            tensor.name
            for tensor, memory in zip(
                session.get_inputs(), session.get_input_memory_infos(), strict=True
            )
            if memory.name.lower() != device
        )
        self._eager = self._options(NOT_RECORDED)
        self._num_recorded = 0

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        return self._bind(inputs, outputs, self._eager)

    def record(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        self._num_recorded += 1
        run = self._bind(inputs, outputs, self._options(self._num_recorded))
        try:
            run()
        except AttendantError:
            raise
        except Exception as error:
            raise DeviceError(f"ONNX Runtime cannot record this: {last_line(error)}") from error
        return run

    def _bind(self, inputs: dict[str, Array], outputs: dict[str, Array], options: object) -> Run:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, *self._location(name, array))
        for name, array in outputs.items():
            binding.bind_output(name, *self._location(name, array))
        run = self._session.run_with_iobinding
        arrays = (inputs, outputs)  # kept alive by the function: a binding only has addresses

        def run_bound(_: object = arrays) -> None:
            try:
                run(binding, options)
            except Exception as error:  # ONNX Runtime's own exceptions share no narrower base
                if (own_error := device_error(error)) is not None:
                    raise own_error from error
                raise

        return run_bound

    def _location(self, name: str, array: Array) -> tuple[object, ...]:
        device = "cpu" if name in self.host_inputs else self._device
        assert device != "cpu" or not isinstance(array, DeviceArray), f"the host reads {name}"
        return memory_location(array, device, BFLOAT16 if name in self._bfloat16 else None)

    def _options(self, number: int) -> object:
        return self._make_options(
            {"gpu_graph_id": str(number), "disable_synchronize_execution_providers": "1"}
        )


def device_error(error: Exception) -> AttendantError | None:
    """Return the DeviceError or OutOfMemory for an exception of ONNX Runtime, if the device causes
    it.
    """
    text = str(error)
    if any(sign in text for sign in _FULL):
        return OutOfMemory("the GPU's memory is full; try again later, or with less text")
    if any(sign in text for sign in _BROKEN):
        return DeviceError(f"the GPU failed: {last_line(error)}")
    return None


def last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[-1]


class MirrorableGraph(RecordingGraph, Protocol):
    @property
    def host_inputs(self) -> Set[str]:
        """Return the names of inputs that are read on the host during each run."""


class Mirror:
    """Maps host arrays to their copies on the device; a view is mapped to the same view of the
    copy. The copies live as long as the mirror.
    """

    def __init__(self, memory: CudaMemory) -> None:
        self.memory = memory
        self._copies: dict[int, Pair] = {}  # by the identity of the array that owns the memory

    def copy_of(self, array: Array) -> Array:
        """Return the copy of an array in device memory; a device array is returned unchanged."""
        if isinstance(array, DeviceArray):
            return array
        owner = array.base if isinstance(array.base, np.ndarray) else array
        if id(owner) not in self._copies:
            self._copies[id(owner)] = owner, self.memory.zeros(owner.shape, owner.dtype.name)
        return _same_view(array, *self._copies[id(owner)])


class MirroredGraph:
    """Binds host arrays to a graph that accepts only device arrays. The copies are not part of a
    recording.
    """

    def __init__(self, graph: MirrorableGraph, mirror: Mirror) -> None:
        self._graph, self._mirror = graph, mirror

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        run = self._graph.bind(self._device_arrays(inputs), self._device_arrays(outputs))
        return self._with_copies(run, inputs, outputs)

    def record(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        for array in self._host_arrays(inputs):
            self._mirror.memory.copy(self._mirror.copy_of(array), array)
        try:
            run = self._graph.record(self._device_arrays(inputs), self._device_arrays(outputs))
        except AttendantError:
            self._mirror.memory.runtime.end_recording()
            raise
        return self._with_copies(run, inputs, outputs)

    def _with_copies(self, run: Run, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Return the run with its copies. It waits only if outputs are copied to the host."""
        memory = self._mirror.memory
        to_device = [(self._mirror.copy_of(a), a) for a in self._host_arrays(inputs)]
        to_host = [(a, self._mirror.copy_of(a)) for a in self._host_arrays(outputs)]

        def run_mirrored() -> None:
            for target, source in to_device:
                memory.copy(target, source)
            run()
            for target, source in to_host:
                memory.copy(target, source)
            if to_host:
                memory.synchronize()

        return run_mirrored

    def _device_arrays(self, arrays: dict[str, Array]) -> dict[str, Array]:
        return {
            name: array if name in self._graph.host_inputs else self._mirror.copy_of(array)
            for name, array in arrays.items()
        }

    def _host_arrays(self, arrays: dict[str, Array]) -> list[Array]:
        """Return the host arrays that are read or written on the device."""
        return [
            array
            for name, array in arrays.items()
            if not isinstance(array, DeviceArray) and name not in self._graph.host_inputs
        ]


def _same_view(array: Array, owner: Array, device_copy: Array) -> Array:
    """Return the view of `device_copy` that `array` is of `owner`; both are contiguous."""
    assert array.flags.c_contiguous and owner.flags.c_contiguous
    first = (_address(array) - _address(owner)) // owner.itemsize
    part = device_copy.reshape(-1)[first : first + array.size]
    return part.view(array.dtype).reshape(array.shape)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address

"""Lets a graph on a device read and write arrays of the host.

ONNX Runtime copies what is bound from the host when it is bound, not when it runs. So arrays of the
host have twins on the device, which are bound in their place: before each run what it reads goes
up, after it what it writes comes down.
"""

from collections.abc import Set
from typing import Protocol

import numpy as np

from serving.arrays import Array
from serving.engine.device.memory import CudaMemory, DeviceArray
from serving.engine.graphs.graph import RecordingGraph, Run
from serving.errors import AttendantError

Pair = tuple[Array, Array]  # target and source of a copy


class OnDevice(RecordingGraph, Protocol):
    @property
    def host_inputs(self) -> Set[str]:
        """Name what it reads on the host, at the time of each run."""


class Mirror:
    """Finds the twins of arrays; a view's twin is that view of the twin. They stay as long as it
    does.
    """

    def __init__(self, memory: CudaMemory) -> None:
        self.memory = memory
        self._twins: dict[int, Pair] = {}  # by the identity of whoever owns the memory

    def twin(self, array: Array) -> Array:
        """Return the twin in device memory; of a device's array that itself."""
        if isinstance(array, DeviceArray):
            return array
        owner = array.base if isinstance(array.base, np.ndarray) else array
        if id(owner) not in self._twins:
            self._twins[id(owner)] = owner, self.memory.zeros(owner.shape, owner.dtype.name)
        return _same_view(array, *self._twins[id(owner)])


class MirroredGraph:
    """Binds arrays of the host to a graph that takes those of the device alone. The copies are no
    part of a recording.
    """

    def __init__(self, graph: OnDevice, mirror: Mirror) -> None:
        self._graph, self._mirror = graph, mirror

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        run = self._graph.bind(self._twins(inputs), self._twins(outputs))
        return self._around(run, inputs, outputs)

    def record(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        for array in self._mirrored(inputs):
            self._mirror.memory.copy(self._mirror.twin(array), array)
        try:
            run = self._graph.record(self._twins(inputs), self._twins(outputs))
        except AttendantError:
            self._mirror.memory.runtime.end_recording()
            raise
        return self._around(run, inputs, outputs)

    def _around(self, run: Run, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Return the run with its copies. Nothing is waited for where nothing comes down."""
        memory = self._mirror.memory
        up = [(self._mirror.twin(each), each) for each in self._mirrored(inputs)]
        down = [(each, self._mirror.twin(each)) for each in self._mirrored(outputs)]

        def run_mirrored() -> None:
            for target, source in up:
                memory.copy(target, source)
            run()
            for target, source in down:
                memory.copy(target, source)
            if down:
                memory.synchronize()

        return run_mirrored

    def _twins(self, arrays: dict[str, Array]) -> dict[str, Array]:
        return {
            name: each if name in self._graph.host_inputs else self._mirror.twin(each)
            for name, each in arrays.items()
        }

    def _mirrored(self, arrays: dict[str, Array]) -> list[Array]:
        """List the arrays of the host that are read or written on the device."""
        return [
            each
            for name, each in arrays.items()
            if not isinstance(each, DeviceArray) and name not in self._graph.host_inputs
        ]


def _same_view(array: Array, owner: Array, twin: Array) -> Array:
    """Return the part of `twin` that `array` is of `owner`, both without gaps."""
    assert array.flags.c_contiguous and owner.flags.c_contiguous
    first = (_address(array) - _address(owner)) // owner.itemsize
    part = twin.reshape(-1)[first : first + array.size]
    return part.view(array.dtype).reshape(array.shape)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address

"""Binds arrays to a session of ONNX Runtime."""

from typing import Any

from serving.arrays import Array
from serving.engine.graphs.graph import Run

Location = tuple[str, int, object, tuple[int, ...], int]


class OrtGraph:
    """Wraps one session. Each binding keeps addresses; whoever binds keeps the arrays alive."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, *location(array, "cpu"))
        for name, array in outputs.items():
            binding.bind_output(name, *location(array, "cpu"))
        run = self._session.run_with_iobinding
        keep = (inputs, outputs)

        def run_bound(keep: object = keep) -> None:
            run(binding)

        return run_bound


def location(array: Array, place: str, element_type: object = None) -> Location:
    """Return what ONNX Runtime wants to know of memory in a place, "cpu" or "cuda".

    element_type: where it is not the array's own.
    """
    assert array.flags.c_contiguous
    address = array.__array_interface__["data"][0]
    return place, 0, element_type or array.dtype.type, array.shape, address

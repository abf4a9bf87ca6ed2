"""Binds arrays in device memory to a session of ONNX Runtime, and records its runs.

ONNX Runtime records by the number that a run's options name as `gpu_graph_id`: the first run of a
number is made until it needs no more memory, then recorded; later ones are replayed, without a look
at what is bound. So each recording has a binding and a number of its own, and -1 is never recorded.
Recordings are kept for each thread, and no other thread may ask the device for memory meanwhile:
all are made while an engine starts.
"""

from collections.abc import Callable
from typing import Any

from serving.arrays import Array
from serving.engine.device.memory import DeviceArray
from serving.engine.graphs.graph import Run
from serving.engine.graphs.ort_graph import location
from serving.errors import AttendantError, DeviceError, OutOfMemory

BFLOAT16 = 16  # of ONNX's element types; numpy has no such type
NOT_RECORDED = -1
MakeOptions = Callable[[dict[str, str]], object]
# Parts of ONNX Runtime's messages.
_FULL = ("Failed to allocate memory", "out of memory", "ALLOC_FAILED")
_BROKEN = ("CUDA failure", "CUDA error", "CUBLAS failure", "CUDNN failure")


class DeviceGraph:
    """Wraps a session whose runs are put on the engine's stream; nothing here waits for them.

    host_inputs: those that operators read on the host, as ONNX Runtime's GRU and LSTM their
        lengths. Of an array on the device it would bind a copy, made but once.
    """

    def __init__(self, session: Any, make_options: MakeOptions, place: str = "cuda") -> None:
        """make_options: makes a run's options of configuration entries. place: where arrays lie."""
        self._session, self._make_options, self._place = session, make_options, place
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
            if memory.name.lower() != place
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
        keep = (inputs, outputs)

        def run_bound(keep: object = keep) -> None:
            try:
                run(binding, options)
            except Exception as error:  # ONNX Runtime's own exceptions share no narrower base
                if (known := device_error(error)) is not None:
                    raise known from error
                raise

        return run_bound

    def _location(self, name: str, array: Array) -> tuple[object, ...]:
        place = "cpu" if name in self.host_inputs else self._place
        assert place != "cpu" or not isinstance(array, DeviceArray), f"the host reads {name}"
        return location(array, place, BFLOAT16 if name in self._bfloat16 else None)

    def _options(self, number: int) -> object:
        return self._make_options(
            {"gpu_graph_id": str(number), "disable_synchronize_execution_providers": "1"}
        )


def device_error(error: Exception) -> AttendantError | None:
    """Return an error of ours for one of ONNX Runtime's, where the device is to blame."""
    text = str(error)
    if any(sign in text for sign in _FULL):
        return OutOfMemory("the GPU's memory is full; try again later, or with less text")
    if any(sign in text for sign in _BROKEN):
        return DeviceError(f"the GPU failed: {last_line(error)}")
    return None


def last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[-1]

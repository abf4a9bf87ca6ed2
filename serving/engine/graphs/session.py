"""Loads a bundle's graphs into ONNX Runtime; no other file imports it."""

import os

# Read as soon as ONNX Runtime is imported. Without it its telemetry keeps a number of this machine
# and a database in ~/.cache/Microsoft, and sends events to Microsoft.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnxruntime as ort

from serving.arrays import Array
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle
from serving.engine.config import Device, EngineConfig
from serving.engine.graphs.graph import Graphs
from serving.engine.graphs.processor import has_vnni
from serving.engine.states.memory import CudaMemory, DeviceArray, HostMemory
from serving.errors import BundleError, DeviceError

# Fused, they are 6 times slower on CPU at 32 rows.
DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]


def open_graphs(bundle: Bundle, config: EngineConfig) -> Graphs:
    """Load the graphs, but the one for attention only when it is asked for. Raises DeviceError
    where the device is not there, BundleError where a graph does not load.
    """
    check_device(config.device, bundle.manifest.precision)
    names = bundle.manifest.graphs
    step = _open_graph(bundle, "step", config)
    encode = _open_graph(bundle, "encode", config) if "encode" in names else None
    memory = CudaMemory() if config.device == "cuda" else HostMemory()
    attention = partial(_open_graph, bundle, "step_attention", config)
    return Graphs(step, encode, memory, attention if "step_attention" in names else None)


def check_device(device: Device, precision: Precision) -> None:
    if device == "cpu":
        return
    if precision is not Precision.FP16:
        raise DeviceError(f"device cuda runs fp16 bundles; this one is {precision}")
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise DeviceError(
            "device cuda: this ONNX Runtime has no CUDA provider; install attendant[gpu]"
        )


class OrtGraph:
    """Wraps one session. Each binding keeps addresses; whoever binds keeps the arrays alive."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Callable[[], None]:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, *_location(array))
        for name, array in outputs.items():
            binding.bind_output(name, *_location(array))
        run = self._session.run_with_iobinding
        keep = (inputs, outputs)

        def run_bound(keep: object = keep) -> None:
            run(binding)

        return run_bound


def _location(array: Array) -> tuple[str, int, object, tuple[int, ...], int]:
    assert array.flags.c_contiguous
    device = "cuda" if isinstance(array, DeviceArray) else "cpu"
    return device, 0, array.dtype.type, array.shape, array.__array_interface__["data"][0]


def _open_graph(bundle: Bundle, name: str, config: EngineConfig) -> OrtGraph:
    path = bundle.graph_path(name)
    try:
        session = open_session(path, config)
    except Exception as error:  # ONNX Runtime's own exceptions share no narrower base
        problem = f"{path.name}: {str(error).strip().splitlines()[-1]}"
        raise BundleError(bundle.folder, [problem]) from error
    return OrtGraph(session)


def open_session(model: Path | bytes, config: EngineConfig) -> ort.InferenceSession:
    """Load a file or serialised model as it is served. Nobody opens sessions in another way, so
    that what is tested and measured is what runs. Raises what ONNX Runtime raises.
    """
    return ort.InferenceSession(
        model,
        _session_options(config),
        providers=_providers(config.device),
        disabled_optimizers=DISABLED_OPTIMIZERS,
    )


def assigned_nodes(model: Path, device: Device, optimised: Path) -> list[tuple[str, str]]:
    """Name the execution provider and the operator of every node of a graph, as ONNX Runtime
    assigns them where falling back to the CPU is allowed. Raises what ONNX Runtime raises.

    optimised: where the graph is written as it would run, copies between devices included.
    """
    if device == "cuda":
        ort.preload_dlls()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.optimized_model_filepath = str(optimised)
    session = ort.InferenceSession(
        model,
        options,
        providers=[f"{device.upper()}ExecutionProvider"],
        disabled_optimizers=DISABLED_OPTIMIZERS,
    )
    parts = session.get_provider_graph_assignment_info()
    return [(part.ep_name, node.op_type) for part in parts for node in part.get_nodes()]


def _session_options(config: EngineConfig) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = config.threads
    options.log_severity_level = 3
    # Threads look out for the next operator for as long as one takes to come, then sleep. Without
    # that a step takes a quarter more time, or twice as much; without an end idle threads burn.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", "30")
    # Makes signed weights unsigned, so that no sum saturates. ONNX Runtime would do so on every
    # x86 processor; those with VNNI sum exactly anyway, and take twice the time for it.
    if not has_vnni():
        options.add_session_config_entry("session.x64quantprecision", "1")
    if config.device == "cuda":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def _providers(device: Device) -> list[str]:
    if device == "cpu":
        return ["CPUExecutionProvider"]
    ort.preload_dlls()
    return ["CUDAExecutionProvider"]

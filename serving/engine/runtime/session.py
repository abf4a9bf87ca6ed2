"""Load a bundle's graphs into ONNX Runtime; only this file imports it."""

import os
from pathlib import Path

# ONNX Runtime reads this when it is imported. Without it, its telemetry stores an id of the machine
# and a database in ~/.cache/Microsoft, and sends events to Microsoft.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import ctypes
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import onnxruntime as ort

from serving.bundle.manifest import (
    DEVICE_PRECISIONS,
    ENCODE_ATTENTION,
    SELECT,
    STEP_ATTENTION,
    Manifest,
    Precision,
)
from serving.bundle.opening import Bundle
from serving.engine.config import Device, EngineConfig
from serving.engine.cuda.cuda_runtime import CudaRuntime, check_devices, load_library, mebibytes
from serving.engine.cuda.device_graph import (
    DeviceGraph,
    Mirror,
    MirroredGraph,
    device_error,
    last_line,
)
from serving.engine.cuda.memory import CudaMemory, DeviceBytes, bytes_of_row, rows_that_fit
from serving.engine.runtime.graph import NO_STEP, Graph, Graphs, OrtGraph
from serving.engine.runtime.mapped_files import release_pages
from serving.engine.states.memory import HostMemory
from serving.engine.states.store import Coarse
from serving.errors import BundleError, DeviceError, OutOfMemory
from serving.kernels.library import native_kernels, register_kernels

logger = logging.getLogger(__name__)

VNNI_FLAGS = {"avx512_vnni", "avx_vnni"}
# Fused, they are 6 times slower on CPU at 32 rows.
DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]
# Memory grows by the missing amount, not to twice its size; fp32 operations stay in fp32.
CUDA_OPTIONS = {"arena_extend_strategy": "kSameAsRequested", "use_tf32": "0"}


def open_graphs(bundle: Bundle, config: EngineConfig) -> Graphs:
    """Load the graphs; those with attention are loaded when they are needed. Raises DeviceError if
    the device is missing, BundleError if a graph cannot be loaded.
    """
    check_device(config.device, bundle.manifest.precision)
    if config.device == "cuda":
        return _open_device_graphs(bundle, config)

    def load(name: str) -> OrtGraph:
        graph = OrtGraph(_open_graph(bundle, name, config))
        for file in bundle.weight_files:
            release_pages(file)
        return graph

    names = bundle.manifest.graphs
    step: Graph = load("step") if "step" in names else NO_STEP
    encode = load("encode") if "encode" in names else None
    attention, encode_attention = (
        partial(load, name) if name in names else None
        for name in (STEP_ATTENTION, ENCODE_ATTENTION)
    )
    return Graphs(
        step,
        encode,
        HostMemory(),
        attention,
        can_prefill=encode is None or native_kernels().path is not None,
        encode_attention=encode_attention,
    )


def _open_device_graphs(bundle: Bundle, config: EngineConfig) -> Graphs:
    """Load the graphs so that all their runs use one stream, the same as the copies of states."""
    memory = CudaMemory(CudaRuntime())
    mirror = Mirror(memory)
    options = {
        **CUDA_OPTIONS,
        "user_compute_stream": str(memory.runtime.stream),
        "gpu_mem_limit": str(int(config.device_share * memory.runtime.memory()[1])),
    }

    def load(name: str, is_recorded: bool = False) -> MirroredGraph:
        provider_options = {**options, "enable_cuda_graph": str(int(is_recorded))}
        session = _open_graph(bundle, name, config, provider_options)
        graph = DeviceGraph(session, _run_options)
        if graph.host_inputs:
            _never_free(session)
        return MirroredGraph(graph, mirror)

    manifest = bundle.manifest
    if manifest.task.only_encodes:
        return Graphs(NO_STEP, load("encode"), memory)
    step, recording = _load_device_step(manifest, load)
    encode = load("encode") if "encode" in manifest.graphs else None
    attention, encode_attention = (
        partial(load, name) if name in manifest.graphs else None
        for name in (STEP_ATTENTION, ENCODE_ATTENTION)
    )
    return Graphs(
        step,
        encode,
        memory,
        attention,
        Coarse(),
        recording,
        _max_rows(bundle, config, memory.runtime),
        _load_device_select(manifest, load),
        encode_attention=encode_attention,
    )


def _never_free(session: ort.InferenceSession) -> None:
    """Keep a session until the process ends, and do not free it then.

    The last host memory of a session with GRU or LSTM is freed by a callback on the stream. If the
    session is freed first, the callback frees all of its memory, which CUDA forbids in callbacks,
    and the process is aborted (onnxruntime-gpu 1.31.1). Replicas on a GPU keep their models anyway.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


def _load_device_step(
    manifest: Manifest, load: Callable[[str, bool], MirroredGraph]
) -> tuple[MirroredGraph, MirroredGraph | None]:
    """Load the step graph, and load it again for recording, if its runs can be recorded: not with a
    shortlist, whose shapes change, and not if ONNX Runtime cannot record an operator.
    """
    if not manifest.has_shortlist:
        try:
            step = load("step", True)
        except BundleError as error:
            logger.warning("%s: steps are not recorded: %s", manifest.name, error)
        else:
            return step, step
    return load("step", False), None


def _load_device_select(
    manifest: Manifest, load: Callable[[str], MirroredGraph]
) -> MirroredGraph | None:
    """Load the graph that chooses tokens; without it the host chooses."""
    if SELECT not in manifest.graphs:
        return None
    try:
        return load(SELECT)
    except BundleError as error:
        logger.warning("%s: the host chooses all tokens: %s", manifest.name, error)
        return None


def _max_rows(bundle: Bundle, config: EngineConfig, runtime: CudaRuntime) -> int:
    manifest = bundle.manifest
    free, total = runtime.memory()
    weights = sum(bundle.graph_path(name).stat().st_size for name in manifest.graphs)
    weights += sum(file.stat().st_size for file in bundle.weight_files)
    rows = rows_that_fit(
        manifest, config, DeviceBytes(free, int(config.device_share * total) - weights)
    )
    size, has = mebibytes(bytes_of_row(manifest)), f"{mebibytes(free)} of {mebibytes(total)}"
    logger.info("%s: memory for %d rows of %s; %s are free", manifest.name, rows, size, has)
    return rows


def with_device(config: EngineConfig, manifest: Manifest) -> EngineConfig:
    """Replace `auto` by a device: a GPU that can run the bundle, else the CPU."""
    if config.device != "auto":
        return config
    try:
        check_device("cuda", manifest.precision)
    except DeviceError as error:
        if manifest.precision is Precision.BF16:
            raise
        if manifest.precision is Precision.FP16:
            logger.warning("%s, made for a GPU, runs on the CPU: %s", manifest.name, error)
        return replace(config, device="cpu")
    return replace(config, device="cuda")


def available_providers() -> list[str]:
    """Return the names of ONNX Runtime's execution providers here, such as CPU and CUDA."""
    names: list[str] = ort.get_available_providers()
    return [name.removesuffix("ExecutionProvider") for name in names]


def check_device(device: Device, precision: Precision) -> None:
    """Raises DeviceError, in one line, if the device cannot run this precision."""
    if device == "cpu" and precision is Precision.BF16:
        raise DeviceError(
            "device cpu runs no bf16 bundles; export it again with --precision fp32 or int8"
        )
    if device != "cuda":
        return
    if precision not in DEVICE_PRECISIONS:
        raise DeviceError(
            f"device cuda runs bf16 and fp16 bundles; this one is {precision}, for the CPU: "
            "export it again with --precision bf16"
        )
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise DeviceError(
            "device cuda: this ONNX Runtime has no CUDA provider; install attendant-server[gpu]"
        )
    ort.preload_dlls()
    check_devices(load_library())


def _open_graph(
    bundle: Bundle, name: str, config: EngineConfig, cuda: dict[str, str] | None = None
) -> ort.InferenceSession:
    path = bundle.graph_path(name)
    try:
        return open_session(path, config, cuda)
    except Exception as error:  # ONNX Runtime's own exceptions share no narrower base
        if cuda is not None:
            _raise_device_error(path, config, error)
        problem = f"{path.name}: {last_line(error)}"
        raise BundleError(bundle.folder, [problem]) from error


def _raise_device_error(path: Path, config: EngineConfig, error: Exception) -> None:
    """Raise DeviceError if the device causes the error: it is full, or its libraries do
    not match.
    """
    if isinstance(full := device_error(error), OutOfMemory):
        raise full from error
    options = _session_options(config, allows_cpu=True)
    try:
        session = ort.InferenceSession(path, options, providers=["CUDAExecutionProvider"])
    except Exception:  # then the graph causes the error
        return
    if "CUDAExecutionProvider" not in session.get_providers():
        version = getattr(ort, "cuda_version", "") or "another version"
        raise DeviceError(
            f"the CUDA provider of ONNX Runtime {ort.__version__} does not load: it wants the "
            f"libraries of CUDA {version}; install attendant-server[gpu] anew"
        ) from error


def open_session(
    model: Path | bytes,
    config: EngineConfig,
    cuda: dict[str, str] | None = None,
    profile: Path | None = None,
) -> ort.InferenceSession:
    """Load a file or serialised model as it is served. All sessions are opened here, so that tests
    and measurements run the same code. Raises the exceptions of ONNX Runtime.

    cuda: options of the CUDA provider.
    profile: prefix of the file to which the time of every operator is written.
    """
    options = _session_options(config)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return ort.InferenceSession(
        model,
        options,
        providers=_providers(config.device, cuda or CUDA_OPTIONS),
        disabled_optimizers=DISABLED_OPTIMIZERS,
    )


def assigned_nodes(model: Path, device: Device, optimised: Path) -> list[tuple[str, str]]:
    """Return the execution provider and the operator of every node of a graph, as ONNX Runtime
    assigns them if it may fall back to the CPU. Raises the exceptions of ONNX Runtime.

    optimised: path to which the optimised graph is written, including copies between devices.
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


def _session_options(config: EngineConfig, allows_cpu: bool = False) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = config.threads
    options.log_severity_level = 3
    # Between operators, threads look for the next one for 30 microseconds, about as long as it
    # takes to come, and then sleep. Without that a step takes a quarter more time, or twice as
    # much; without a limit, idle threads use whole processors.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.intra_op.spin_duration_us", "30")
    # Makes signed weights unsigned, so that no sum saturates. ONNX Runtime would do so on every
    # x86 processor; those with VNNI sum exactly anyway, and take twice the time for it.
    if not has_vnni():
        options.add_session_config_entry("session.x64quantprecision", "1")
    if config.device == "cpu":
        register_kernels(options)
    if config.device == "cuda" and not allows_cpu:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def _providers(device: Device, cuda: dict[str, str]) -> list[str | tuple[str, dict[str, str]]]:
    if device == "cpu":
        return ["CPUExecutionProvider"]
    ort.preload_dlls()
    return [("CUDAExecutionProvider", cuda)]


def _run_options(entries: dict[str, str]) -> ort.RunOptions:
    options = ort.RunOptions()
    for name, value in entries.items():
        options.add_run_config_entry(name, value)
    return options


def has_vnni(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether int8 products are summed in 32 bits at once, so that no sum saturates; False
    if this is unknown.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return bool(flags) and all(VNNI_FLAGS.intersection(flags_of_cpu) for flags_of_cpu in flags)

"""Tests what is told to ONNX Runtime, here on its CPU provider: it has the same bindings and
options.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.cuda.device_graph import BFLOAT16, DeviceGraph, device_error
from serving.engine.runtime import session
from serving.engine.runtime.session import check_device, open_session
from serving.errors import DeviceError, OutOfMemory
from tests.devices.fake_cuda import FakeCuda
from tests.tiny import tiny_bundle


def graph_of(element_type: int) -> DeviceGraph:
    """x + x, as DeviceGraph runs it."""
    x, y = (helper.make_tensor_value_info(name, element_type, ["n"]) for name in "xy")
    cast = helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT)
    add = helper.make_node("Add", ["wide", "wide"], ["sum"])
    back = helper.make_node("Cast", ["sum"], ["y"], to=element_type)
    model = helper.make_model(
        helper.make_graph([cast, add, back], "double", [x], [y]),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    opened = open_session(model.SerializeToString(), EngineConfig(threads=1))
    return DeviceGraph(opened, session._run_options, "cpu")


def test_runs_and_recordings_have_bindings_of_their_own() -> None:
    graph = graph_of(TensorProto.FLOAT)
    x, y, z = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32), np.zeros(2, np.float32)
    run = graph.bind({"x": x}, {"y": y})
    recorded = graph.record({"x": x[:2]}, {"y": z})
    assert (y.tolist(), z.tolist()) == ([0, 0, 0], [2, 4])
    x[:] = 5
    run()
    recorded()
    assert (y.tolist(), z.tolist()) == ([10] * 3, [10] * 2)


def test_bfloat16_is_bound_as_what_it_is() -> None:
    assert onnx.TensorProto.BFLOAT16 == BFLOAT16
    x, y = np.array([1, -2.5], np.float32), np.zeros(2, np.uint16)
    graph_of(TensorProto.BFLOAT16).bind({"x": (x.view("u4") >> 16).astype("u2")}, {"y": y})()
    assert (y.astype("u4") << 16).view("f4").tolist() == [2, -5]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bfc_arena.cc: Failed to allocate memory for requested buffer of size 8", OutOfMemory),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0", OutOfMemory),
        ("CUDA failure 2: out of memory ; GPU=0", OutOfMemory),
        ("CUDA failure 700: an illegal memory access was encountered", DeviceError),
        ("Got invalid dimensions for input: ids", type(None)),
    ],
)
def test_what_a_device_is_to_blame_for_has_an_error_of_ours(text: str, kind: type) -> None:
    assert type(device_error(RuntimeError(f"[ONNXRuntimeError] : 6 :\n{text}"))) is kind


def test_what_cannot_be_recorded_is_said() -> None:
    graph = graph_of(TensorProto.FLOAT)
    with pytest.raises(DeviceError, match="cannot record this"):
        graph.record({"x": np.zeros(2, np.float32)}, {"y": np.zeros(3, np.float32)})


@pytest.mark.parametrize(
    ("library", "providers", "precision", "message"),
    [
        (FakeCuda(), ["CUDAExecutionProvider"], Precision.INT8, "export it again with --precision"),
        (FakeCuda(), [], Precision.FP16, r"install attendant-server\[gpu\]"),
        (FakeCuda(num_devices=0), ["CUDAExecutionProvider"], Precision.BF16, "no GPU is visible"),
        (FakeCuda(status=35), ["CUDAExecutionProvider"], Precision.BF16, "update the driver"),
        (FakeCuda(), ["CUDAExecutionProvider"], Precision.FP16, None),
        (FakeCuda(), ["CUDAExecutionProvider"], Precision.BF16, None),
    ],
)
def test_what_a_device_lacks_is_one_line(
    library: FakeCuda,
    providers: list[str],
    precision: Precision,
    message: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session.ort, "get_available_providers", lambda: providers)
    monkeypatch.setattr(session, "load_library", lambda: library)
    if message is None:
        check_device("cuda", precision)
        return
    with pytest.raises(DeviceError, match=message) as caught:
        check_device("cuda", precision)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_load_is_not_the_bundles_fault(tmp_path: Path) -> None:
    """Here there is none; ONNX Runtime then leaves it out, and says only what follows from that."""
    bundle = open_bundle(tiny_bundle("llama", tmp_path, Precision.FP16))
    with pytest.raises(DeviceError, match="does not load: it wants the libraries of CUDA"):
        session._open_graph(bundle, "step", EngineConfig(threads=1, device="cuda"), {})

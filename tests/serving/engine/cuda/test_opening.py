"""How a bundle's graphs are put on a device: with what options, and what is recorded."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.cuda.cuda_runtime import CudaRuntime
from serving.engine.runtime import session
from serving.errors import BundleError
from tests.devices.fake_cuda import FakeCuda
from tests.serving.engine.toy import toy_bundle
from tests.tiny import tiny_bundle

OPENED = SimpleNamespace(get_inputs=list, get_outputs=list, get_input_memory_infos=list)
NUM_BYTES = 2**33


class Opener:
    """Stands in for ONNX Runtime; remembers what it was asked to open, by graph."""

    def __init__(self, can_record: bool = True) -> None:
        self.can_record = can_record
        self.asked: list[tuple[str, dict[str, str]]] = []

    def __call__(self, bundle: Any, name: str, config: Any, cuda: dict[str, str]) -> Any:
        self.asked.append((name, cuda))
        if cuda["enable_cuda_graph"] == "1" and not self.can_record:
            raise BundleError(bundle.folder, ["cannot use the graph capture feature"])
        return OPENED


@pytest.fixture
def on_fake(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(session, "check_device", lambda device, precision: None)
    monkeypatch.setattr(session, "CudaRuntime", lambda: CudaRuntime(FakeCuda(NUM_BYTES)))
    return monkeypatch


@pytest.mark.parametrize("can_record", [True, False])
def test_steps_are_recorded_where_they_can_be_on_the_one_stream(
    can_record: bool, tmp_path: Path, on_fake: pytest.MonkeyPatch
) -> None:
    opener = Opener(can_record)
    on_fake.setattr(session, "_open_graph", opener)
    bundle = open_bundle(tiny_bundle("transformer", tmp_path, Precision.FP16))
    config = EngineConfig(device="cuda", device_share=0.5)
    graphs = session.open_graphs(bundle, config)
    assert (graphs.recording is graphs.step) == can_record
    recorded = [name for name, cuda in opener.asked if cuda["enable_cuda_graph"] == "1"]
    assert recorded == ["step"]
    assert {name for name, _ in opener.asked} >= {"step", "encode"}
    assert "step_attention" not in {name for name, _ in opener.asked}, "only when it is asked for"
    assert {cuda["user_compute_stream"] for _, cuda in opener.asked} == {"77"}
    assert {cuda["gpu_mem_limit"] for _, cuda in opener.asked} == {str(NUM_BYTES // 2)}
    assert graphs.max_rows is not None and graphs.max_rows > 1000


def test_steps_with_a_shortlist_are_not_recorded(
    tmp_path: Path, on_fake: pytest.MonkeyPatch
) -> None:
    opener = Opener()
    on_fake.setattr(session, "_open_graph", opener)
    bundle = open_bundle(tiny_bundle("transformer", tmp_path, Precision.FP16))
    manifest = replace(bundle.manifest, graphs=dict(bundle.manifest.graphs))
    manifest.graphs["step"] = toy_bundle(has_shortlist=True).manifest.graphs["step"]
    graphs = session.open_graphs(replace(bundle, manifest=manifest), EngineConfig(device="cuda"))
    assert graphs.recording is None
    assert {cuda["enable_cuda_graph"] for _, cuda in opener.asked} == {"0"}

"""fp16 bundles are for CUDA; here their graphs are built, loaded and run on the CPU's kernels. bf16
has none there: such graphs run widened to fp32.
"""

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper

from serving.bundle.manifest import SELECT, Precision
from serving.bundle.opening import Bundle, open_bundle
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.graph.widening import widened
from tests.export.parity import examples_of
from tests.grid import in_turns
from tests.tiny import DECODERS, PICTURE_READER, SOUND_READER, tiny_bundle

PRECISE = {"mamba", "mamba2", "rwkv7"}  # whose states add up for as long as a text is
SEEDS = {"mamba2": 1}  # at 0 a rounded table errs as at none of the next eight
TYPES = {Precision.FP16: "float16", Precision.BF16: "bfloat16"}
SIXTEEN_BITS = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}


CASES = in_turns([*DECODERS, PICTURE_READER, SOUND_READER], [Precision.FP16, Precision.BF16])


@pytest.mark.parametrize(("architecture", "precision"), CASES)
def test_log_probabilities_are_near_those_of_torch(
    tmp_path: Path, architecture: str, precision: Precision
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, precision, SEEDS.get(architecture, 0))
    states = open_bundle(bundle).manifest.states
    half = TYPES[precision]
    assert {state.dtype for state in states} == {"float32" if architecture in PRECISE else half}
    assert_graphs_have_one_type_of_16_bits(open_bundle(bundle), half)
    if precision is Precision.BF16:
        bundle = widened(bundle, tmp_path / "wide")
    assert_errs_by_rounding(bundle, tmp_path / architecture, examples_of(architecture), precision)


def assert_graphs_have_one_type_of_16_bits(opened: Bundle, half: str) -> None:
    """Operators take no two of them; the other one would be forgotten somewhere. What chooses
    tokens has none.
    """
    assert SELECT in opened.manifest.graphs
    for name, spec in opened.manifest.graphs.items():
        graph = onnx.load(opened.folder / spec.file, load_external_data=False).graph
        casts = [a.i for node in graph.node for a in node.attribute if a.name == "to"]
        weights = [tensor.data_type for tensor in graph.initializer]
        actual = {SIXTEEN_BITS[number] for number in (*casts, *weights) if number in SIXTEEN_BITS}
        assert actual == (set() if name == SELECT else {half})


@pytest.mark.parametrize("architecture", [*DECODERS, PICTURE_READER, SOUND_READER])
def test_steps_have_nothing_that_a_recording_loses(tmp_path: Path, architecture: str) -> None:
    """CUDA's Split of five or more pieces, not all of one size, copies tables from host memory."""
    opened = open_bundle(tiny_bundle(architecture, tmp_path, Precision.FP16))
    graph = onnx.load(opened.graph_path("step"), load_external_data=False).graph
    sizes = {
        each.name: numpy_helper.to_array(each).tolist()
        for each in graph.initializer
        if each.data_type == onnx.TensorProto.INT64
    }
    splits = [sizes[node.input[1]] for node in graph.node if node.op_type == "Split"]
    assert all(len(each) < 5 or len({*each}) == 1 for each in splits)


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
@pytest.mark.parametrize(
    ("imported", "what"),
    [
        ({"experts": {"num_experts": 3, "num_used": 1, "ffn_dim": 8}}, "mixtures of experts"),
        ({"attention_sinks": True}, "attention sinks"),
    ],
)
def test_what_runs_on_cpus_alone_is_refused(
    imported: dict[str, Any], what: str, precision: Precision, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"{what} run on CPUs: export them in fp32, int8 or int4"):
        tiny_bundle("llama", tmp_path, precision, imported=imported)

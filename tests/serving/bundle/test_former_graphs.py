"""A bundle of an earlier version may hold a graph that nothing runs any more."""

from dataclasses import replace
from pathlib import Path

import pytest

from serving.bundle.manifest import GraphSpec, Precision, TensorSpec
from serving.bundle.opening import Bundle, open_bundle, write_manifest
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.request import GenerationRequest
from tests.serving.engine.driving import comparable_story, run_alone
from tests.tiny import tiny_bundle

FILE = "verify.onnx"


def add_former_graph(folder: Path) -> Bundle:
    """Add the graph ``verify``, which scored four tokens of a row at once, to a language model.
    Its file is no graph, so that loading it would fail.
    """
    (folder / FILE).write_text("not loaded")
    manifest = open_bundle(folder).manifest
    step = manifest.graphs["step"]
    inputs = tuple(
        replace(tensor, shape=("batch", 4)) if tensor.name == "ids" else tensor
        for tensor in step.inputs
        if tensor.name != "total_lengths"
    )
    states = tuple(tensor for tensor in step.outputs if tensor.name.endswith(".next"))
    updates = tuple(
        replace(state, name=f"{state.name}.{number}") for number in range(3) for state in states
    )
    scores = tuple(
        replace(tensor, shape=("positions", *tensor.shape[1:]))
        for tensor in step.outputs
        if tensor not in states
    )
    wants_logp = TensorSpec("wants_logp", "bool", ())
    former = GraphSpec(FILE, (*inputs, wants_logp), (*updates, *states, *scores))
    write_manifest(folder, replace(manifest, graphs={**manifest.graphs, "verify": former}))
    return open_bundle(folder)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_a_bundle_with_the_graph_verify_is_served_as_one_without_it(
    precision: Precision, tmp_path: Path
) -> None:
    folder = tiny_bundle("llama", tmp_path, precision)
    request = GenerationRequest("0", None, (5, 9, 40), max_new_tokens=20, ignore_eos=True)

    def run(bundle: Bundle) -> object:
        return comparable_story(run_alone(Engine(bundle, EngineConfig(2, 1)), request))

    without = open_bundle(folder)
    assert "verify" not in without.manifest.graphs
    expected = run(without)
    bundle = add_former_graph(folder)
    assert FILE in bundle.manifest.files and "verify" in bundle.manifest.graphs
    assert run(bundle) == expected

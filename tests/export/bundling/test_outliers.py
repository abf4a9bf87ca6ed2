"""Language models in int8: inputs that dwarf the others are found and kept in fp32."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from export.bundling import outliers
from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.graph.blocks import NO_OUTLIERS
from models.checkpoint import Checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from tests.export.parity import Examples, examples_of, torch_log_probabilities
from tests.export.test_rows_are_independent import LENGTHS, assert_rows_are_independent
from tests.tiny import tiny_checkpoint

LOUD = [3, 17, 60]
SIZES = {"d_model": 64, "num_layers": 2, "num_heads": 4, "ffn_dim": 48}


@pytest.fixture(params=["llama", "gpt2", "gpt-neox"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    """Some inputs of every layer are 40 times as large as the others, and weigh less for it."""
    plain = tiny_checkpoint(request.param, tmp_path / "plain", **SIZES)
    weights = {name: np.array(array) for name, array in plain.weights.items()}
    for layer in range(SIZES["num_layers"]):
        for norm, readers in (
            ("attention_norm", ("attention.query", "attention.key", "attention.value")),
            ("feed_forward_norm", ("feed_forward.gate", "feed_forward.up")),
        ):
            for name in (f"{norm}.weight", f"{norm}.bias"):
                if f"layers.{layer}.{name}" in weights:
                    weights[f"layers.{layer}.{name}"][LOUD] *= 40
            for name in readers:
                if f"layers.{layer}.{name}.weight" in weights:
                    weights[f"layers.{layer}.{name}.weight"][:, LOUD] /= 40
    (tmp_path / "loud").mkdir()
    return replace(plain, folder=tmp_path / "loud", weights=weights)


def exported(checkpoint: Checkpoint, folder: Path, precision: Precision) -> Bundle:
    export_checkpoint(checkpoint, folder, precision)
    return open_bundle(folder)


def mean_error(bundle: Bundle, examples: Examples, expected: np.ndarray) -> float:
    actual = GraphRows(bundle, examples.sources).score(examples.targets)
    return float(np.abs(actual - expected).mean())


# In 4 bits most of the error is that of the weights.
@pytest.mark.parametrize(("precision", "factor"), [(Precision.INT8, 3), (Precision.INT4, 1.1)])
def test_they_are_found_and_make_no_errors(
    precision: Precision,
    factor: float,
    checkpoint: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle = exported(checkpoint, tmp_path / "with", precision)
    names = [i.name for i in onnx.load(tmp_path / "with/step.onnx").graph.initializer]
    assert sum(name.endswith(".large") for name in names) >= 2 * SIZES["num_layers"]
    monkeypatch.setattr(outliers, "find_outliers", lambda *_: NO_OUTLIERS)
    examples = examples_of("llama")
    expected = torch_log_probabilities(tmp_path / "plain", examples)  # the scales cancel out
    error = mean_error(bundle, examples, expected)
    without = exported(checkpoint, tmp_path / "without", precision)
    assert error < mean_error(without, examples, expected) / factor


@pytest.mark.parametrize("precision", [Precision.INT8, Precision.INT4])
def test_rows_are_the_same_alone_and_in_company(
    precision: Precision, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    bundle = exported(checkpoint, tmp_path / "bundle", precision)
    assert_rows_are_independent(bundle, examples_of("llama", LENGTHS))


def test_nothing_is_left_of_how_they_were_found(checkpoint: Checkpoint, tmp_path: Path) -> None:
    bundle = exported(checkpoint, tmp_path / "bundle", Precision.INT8)
    outputs = bundle.manifest.graphs["step"].outputs
    assert not any(output.name.startswith("largest.") for output in outputs)
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == {
        "README.md",
        "bundle.json",
        "step.onnx",
        "step_attention.onnx",
        "tokenizer.json",
        "weights.bin",
    }

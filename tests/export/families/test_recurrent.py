"""Graphs of the recurrent encoder-decoders compute what their torch modules compute."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.checking.rows import Rows
from models.layers.equations import CELLS
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

ODD: dict[str, Any] = {"hidden_dim": 17, "embedding_dim": 11, "readout_dim": 11}
APART: dict[str, Any] = {"tied_embeddings": False, "readout_dim": 20}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("cho", ODD),
    ("cho", APART),
    ("sutskever", {"num_layers": 3, "reversed_source": False, **ODD}),
    ("sutskever", {"num_layers": 1, **APART}),
    ("bahdanau", {"readout": "tanh", "attention_dim": 9, **ODD}),
    ("bahdanau", APART),
    ("bahdanau", {"score": "dot", "attention_dim": 9}),
    ("bahdanau", {"score": "scaled-dot", "hard_attention": True}),
]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("family", ["bahdanau", "cho", "sutskever"])
def test_log_probabilities_are_those_of_torch(tmp_path: Path, family: str, cell: str) -> None:
    bundle = tiny_bundle(family, tmp_path, Precision.FP32, cell=cell)
    assert largest_error(bundle, tmp_path / family, examples_of(family)) < 2e-5


@pytest.mark.parametrize(("family", "changes"), VARIANTS)
def test_options_are_those_of_torch(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle(family, tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / family, examples_of(family)) < 2e-5


@pytest.mark.parametrize("cell", CELLS)
def test_int8_and_fp16_are_near(tmp_path: Path, cell: str) -> None:
    for precision in (Precision.FP16, Precision.INT8):
        bundle = tiny_bundle("bahdanau", tmp_path, precision, cell=cell)
        assert_errs_by_rounding(bundle, tmp_path / "bahdanau", examples_of("bahdanau"))


def test_a_reversed_source_is_read_up_to_its_own_end(tmp_path: Path) -> None:
    """As the source turned around by hand, where the option is off."""
    sources = [[30, 31, 32, 33, 2], [40, 2], [50, 51, 2]]
    states = []
    for is_reversed, given in ((True, sources), (False, [each[::-1] for each in sources])):
        folder = tmp_path / str(is_reversed)
        bundle = tiny_bundle("sutskever", folder, Precision.FP32, reversed_source=is_reversed)
        states.append(Rows(open_bundle(bundle), given).states)
    for name, array in states[0].items():
        assert np.array_equal(array, states[1][name]), name


@pytest.mark.parametrize("family", ["cho", "sutskever"])
def test_fixed_contexts_have_no_attention_to_tell_of(tmp_path: Path, family: str) -> None:
    manifest = open_bundle(tiny_bundle(family, tmp_path, Precision.INT8)).manifest
    assert set(manifest.graphs) == {"encode", "step"}
    assert manifest.alignment_heads == ()

"""RCTM's graphs compute what its torch module computes; there is no attention to tell of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.checking.rows import Rows
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell": "lstm", "tied_embeddings": False, "readout_dim": 18},
        {"cell": "mut2", "hidden_dim": 17, "embedding_dim": 11, "readout_dim": 11},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("rctm", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "rctm", examples_of("rctm")) < 2e-5


def test_sentences_of_every_length_are_those_of_torch(tmp_path: Path) -> None:
    import torch

    from models.loading import load_module
    from models.storage.checkpoint import load_checkpoint

    bundle = tiny_bundle("rctm", tmp_path, Precision.FP32, max_source_tokens=24)
    random = np.random.default_rng(0)
    sources = [random.integers(3, 250, length).tolist() for length in range(1, 25)]
    found = Rows(open_bundle(bundle), sources).states["context"]
    module: Any = load_module(load_checkpoint(tmp_path / "rctm"))
    for row, source in zip(found, sources, strict=True):
        with torch.inference_mode():
            state = module.encode(torch.tensor([source]), torch.tensor([len(source)]))
        np.testing.assert_allclose(row, state.context[0].numpy(), atol=2e-6)


def test_a_bundle_without_attention_opens_and_has_no_alignment_heads(tmp_path: Path) -> None:
    manifest = open_bundle(tiny_bundle("rctm", tmp_path, Precision.INT8)).manifest
    assert set(manifest.graphs) == {"encode", "step"}
    assert manifest.alignment_heads == ()
    assert manifest.num_attention_heads == 0

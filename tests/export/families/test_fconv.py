"""The graphs of fairseq's ConvS2S compute what its torch module computes."""

from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

KINDS: list[dict[str, Any]] = [
    {},
    {"encoder": [{"dim": 17, "kernel_size": 4}], "tied_embeddings": False, "readout_dim": 20},
    {"embedding_dim": 21, "readout_dim": 21, "decoder": [{"dim": 24, "kernel_size": 2}]},
    {"tied_embeddings": False, "source_vocab_size": 400},
]


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("fconv", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "fconv", examples_of("fconv")) < 2e-5

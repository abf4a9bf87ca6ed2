"""RNNsearch's graphs compute what its torch module computes."""

from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tied_embeddings": False, "readout_dim": 20},
        {"hidden_dim": 17, "attention_dim": 9, "embedding_dim": 11, "readout_dim": 11},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("bahdanau", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "bahdanau", examples_of("bahdanau")) < 2e-5

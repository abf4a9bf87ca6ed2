"""The graphs of deep transition networks compute what their torch module computes."""

from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

PLAIN: dict[str, Any] = {"layer_norm": "none", "encoder_layers": 1, "decoder_layers": 1}
KINDS: list[dict[str, Any]] = [
    PLAIN | {"decoder_transitions": 2, "skip": False},
    {"cell": "lstm", "encoder_transitions": 2, "encoder": "alternating"},
    {
        "layer_norm": "gates",
        "encoder": "bidirectional-first",
        "encoder_layers": 3,
        "hidden_dim": 17,
    },
    {"cell": "rnn", "higher_transitions": 2, "tied_embeddings": False, "source_vocab_size": 400},
]


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("nematus", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "nematus", examples_of("nematus")) < 2e-5

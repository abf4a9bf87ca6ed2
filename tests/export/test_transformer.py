"""The Transformer's graphs compute what its torch module computes."""

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
        {"norm": "post"},
        {"positions": "learned", "activation": "gelu"},
        {"tied_embeddings": False, "norm": "post", "activation": "gelu"},
        {"num_heads": 1, "encoder_layers": 1, "decoder_layers": 3, "vocab_size": 300},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "transformer", examples_of("transformer")) < 2e-5

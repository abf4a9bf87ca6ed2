"""The language model's graph computes what its torch module computes, also for prompts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.rows import Rows
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error, torch_log_probabilities
from tests.tiny import tiny_bundle


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tied_embeddings": False, "num_kv_heads": 4},
        {"num_kv_heads": 1, "rope_theta": 500.0, "norm_epsilon": 1e-3, "num_layers": 3},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "llama", examples_of("llama")) < 2e-5


def test_a_prompt_is_read_in_chunks(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("llama", tmp_path, Precision.FP32))
    examples = examples_of("llama", num_steps=20)
    expected = torch_log_probabilities(tmp_path / "llama", examples)
    for row, target in enumerate(examples.targets):
        rows = Rows(bundle, [[]])
        for chunk in (slice(0, 9), slice(9, 10), slice(10, 20)):
            (found,) = rows.read([target[chunk]])
            assert np.abs(found - expected[row, chunk.stop - 1]).max() < 2e-5

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


def test_prompts_of_different_lengths_are_read_at_once(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("llama", tmp_path, Precision.FP32))
    examples = examples_of("llama", num_steps=20)
    expected = torch_log_probabilities(tmp_path / "llama", examples)
    rows = Rows(bundle, examples.sources)
    lengths = (20, 1, 7, 12)
    prompts = [ids[:length] for ids, length in zip(examples.targets, lengths, strict=True)]
    found = rows.read(prompts)
    for row, prompt in enumerate(prompts):
        assert np.abs(found[row] - expected[row, len(prompt) - 1]).max() < 2e-5
    rows = Rows(bundle, examples.sources[:1])
    for chunk in (slice(0, 9), slice(9, 10), slice(10, 20)):
        (found,) = rows.read([examples.targets[0][chunk]])
        assert np.abs(found - expected[0, chunk.stop - 1]).max() < 2e-5

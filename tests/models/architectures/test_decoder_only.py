"""Decoder-only models' graphs compute what their torch modules compute, also for prompts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.running import GraphRows
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error, torch_log_probabilities
from tests.grid import in_turns
from tests.tiny import (
    LIKE_BLOOM,
    LIKE_COMMAND,
    LIKE_DEEPSEEK,
    LIKE_GEMMA,
    LIKE_GPT_OSS,
    LIKE_HUNYUAN,
    LIKE_OLMO,
    LIKE_PHI,
    tiny_bundle,
)

WINDOW = {"window": 5}
ODD_HEADS = {"head_dim": 20}
ODD_FREQUENCIES = {"window_frequencies": [1.0, 0.1], "layers_without_rotation": [2]}
ODD_GEMMA = LIKE_GEMMA | {
    "head_dim": 18,
    "imported": LIKE_GEMMA["imported"] | ODD_FREQUENCIES,
}
SOFTMAX_IN_GROUPS = {"num_experts": 6, "num_used": 2, "ffn_dim": 24} | {
    "groups": {"number": 3, "num_used": 1}
}
FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", WINDOW),
    ("gpt2", {}),
    ("gpt2", WINDOW),
    ("gpt-neox", {}),
    ("gpt-neox", LIKE_BLOOM),
    ("gpt-neox", LIKE_COMMAND),
    ("llama", LIKE_GEMMA),
    ("llama", LIKE_DEEPSEEK),
    ("llama", LIKE_GPT_OSS),
    ("llama", LIKE_HUNYUAN),
    ("llama", LIKE_OLMO),
]


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        *FAMILIES,
        ("llama", {"tied_embeddings": False, "num_kv_heads": 4}),
        ("llama", {"num_kv_heads": 1, "rope_theta": 500.0, "norm_epsilon": 1e-3, "num_layers": 3}),
        (
            "llama",
            {
                "imported": {
                    "attention_bias": "all",
                    "ffn_bias": True,
                    "layers_without_rotation": [0],
                }
            },
        ),
        ("llama", {"imported": {"experts": SOFTMAX_IN_GROUPS}}),
        ("gpt2", {"tied_embeddings": False, "num_layers": 3, "num_heads": 2, "window": 1}),
        ("gpt2", {"head_dim": 16, "activation": "swish", "norm_epsilon": 1e-3}),
        ("gpt-neox", LIKE_PHI | WINDOW),
        (
            "gpt-neox",
            {"parallel_residual": False, "head_dim": 32, "imported": {"attention_bias": False}},
        ),
        ("gpt2", {"head_dim": 12}),
        ("gpt2", WINDOW | {"imported": {"layers_without_window": [0]}}),
        (
            "gpt-neox",
            ODD_HEADS
            | {"imported": {"rotary_frequencies": [1.0, 0.3, 0.1], "rotary_magnitude": 1.3}},
        ),
        ("llama", ODD_HEADS),
        ("llama", ODD_HEADS | {"head_dim": 2, "num_kv_heads": 4}),
        ("llama", ODD_GEMMA),
    ],
)
def test_log_probabilities_are_those_of_torch(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / architecture, examples_of(architecture)) < 2e-5


LOW_PRECISION_CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", WINDOW),
    ("gpt2", WINDOW),
    ("llama", LIKE_GEMMA),
    ("gpt-neox", LIKE_PHI),
    ("gpt-neox", LIKE_BLOOM),
    ("gpt-neox", LIKE_COMMAND),
    ("gpt2", {"head_dim": 12}),
    ("llama", ODD_HEADS),
    ("llama", LIKE_GEMMA | ODD_GEMMA),
    ("gpt-neox", LIKE_PHI | ODD_HEADS),
]


@pytest.mark.parametrize(
    ("architecture", "changes", "precision"),
    in_turns(LOW_PRECISION_CASES, [Precision.FP16, Precision.INT8]),
)
def test_low_precision_is_near_torch(
    tmp_path: Path, architecture: str, changes: dict[str, Any], precision: Precision
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, precision, **changes)
    assert_errs_by_rounding(bundle, tmp_path / architecture, examples_of(architecture))


@pytest.mark.parametrize(("architecture", "changes"), FAMILIES)
def test_a_prompt_is_read_in_chunks(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, Precision.FP32, **changes))
    examples = examples_of(architecture, num_steps=20)
    expected = torch_log_probabilities(tmp_path / architecture, examples)
    for row, target in enumerate(examples.targets):
        rows = GraphRows(bundle, [[]])
        for chunk in (slice(0, 9), slice(9, 10), slice(10, 20)):
            (actual,) = rows.read([target[chunk]])
            assert np.abs(actual - expected[row, chunk.stop - 1]).max() < 2e-5


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gpt-neox"])
def test_the_context_can_be_filled_to_its_end(tmp_path: Path, architecture: str) -> None:
    bundle = tiny_bundle(architecture, tmp_path, Precision.FP32, context_length=16)
    examples = examples_of(architecture, num_steps=16)
    assert largest_error(bundle, tmp_path / architecture, examples) < 2e-5

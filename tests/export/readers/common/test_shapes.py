"""Shapes of weights, and tables of sinusoids."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.readers.common.language_model_shapes import language_model_shapes
from export.readers.common.shapes import luong_shapes, sinusoids, transformer_shapes
from tests.tiny import (
    LIKE_BLOOM,
    LIKE_COMMAND,
    LIKE_DEEPSEEK,
    LIKE_GEMMA,
    LIKE_GPT_OSS,
    LIKE_HUNYUAN,
    LIKE_OLMO,
    LIKE_PHI,
    tiny_checkpoint,
)

UNTIED: dict[str, Any] = {"tied_embeddings": False}
EXPERTS = {"num_experts": 3, "num_used": 2, "ffn_dim": 8}
LIKE_OPENNMT: dict[str, Any] = {"biases": True, "bridge": "relu", "bidirectional": True}
SHAPES: dict[str, Any] = {
    "transformer": transformer_shapes,
    "transformer-ssru": transformer_shapes,
    "gpt2": language_model_shapes,
    "gpt-neox": language_model_shapes,
    "llama": language_model_shapes,
    "luong": luong_shapes,
    "mamba": language_model_shapes,
    "mamba2": language_model_shapes,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {}),
    (
        "transformer",
        UNTIED | {"source_vocab_size": 77, "num_kv_heads": 2, "imported": {"output_bias": True}},
    ),
    (
        "transformer",
        {
            "positions": {"kind": "learned"},
            "norm": {"place": "post"},
            "imported": {"embedding_norm": True},
        },
    ),
    (
        "transformer",
        {"positions": {"kind": "relative"}, "norm": {"kind": "rms"}, "imported": {"biases": False}},
    ),
    ("transformer", {"gated_ffn": True, "head_dim": 16, "imported": {"final_norm": False}}),
    ("transformer-ssru", {}),
    ("gpt2", {}),
    ("gpt2", UNTIED),
    ("gpt-neox", {"imported": {"attention_bias": False}}),
    ("gpt-neox", LIKE_PHI),
    ("gpt-neox", LIKE_BLOOM),
    ("gpt-neox", LIKE_COMMAND),
    ("llama", UNTIED),
    ("llama", {"imported": {"attention_bias": "all", "ffn_bias": True}}),
    ("llama", LIKE_GEMMA),
    ("llama", LIKE_DEEPSEEK),
    ("llama", LIKE_GPT_OSS),
    ("llama", {"imported": {"experts": EXPERTS, "layers_without_experts": [1]}}),
    ("mamba", {}),
    ("mamba", UNTIED | {"imported": {"biases": True, "conv_bias": False}}),
    ("llama", LIKE_HUNYUAN),
    ("llama", LIKE_OLMO),
    ("mamba2", {}),
    ("mamba2", UNTIED | {"num_groups": 1, "imported": {"biases": True, "conv_bias": False}}),
    ("luong", {}),
    ("luong", UNTIED | {"score": "dot", "input_feeding": False, "num_layers": 3}),
    ("luong", {"cell": "gru", "score": "concat", "imported": LIKE_OPENNMT}),
    ("luong", {"cell": "lstm", "imported": {"bridge": "relu"}}),
    ("luong", {"imported": {"bridge": "linear", "memory_dim": 40, "bidirectional": True}}),
    ("luong", {"imported": {"bridge": "tanh", "memory_dim": 20, "encoder_layers": 1}}),
]


@pytest.mark.parametrize(("architecture", "changes"), VARIANTS, ids=str)
def test_they_are_what_the_graph_takes(
    architecture: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint(architecture, tmp_path, **changes)
    taken = {name: checkpoint.weights[name].shape for name in checkpoint.weights}
    assert SHAPES[architecture](checkpoint.config) == taken


DIM, NUM, FIRST = 8, 5, 2


def table(rate: Callable[[int], float]) -> list[list[float]]:
    half = range(DIM // 2)
    positions = range(FIRST, FIRST + NUM)
    return [
        [function(p * rate(i)) for function in (math.sin, math.cos) for i in half]
        for p in positions
    ]


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_rates_are_those_of_the_papers(precision: type[np.floating]) -> None:
    vaswani = sinusoids((NUM, DIM), FIRST, rates="vaswani", precision=precision)
    assert np.allclose(vaswani, table(lambda i: 10000 ** (-2 * i / DIM)), atol=1e-6)
    found = sinusoids((NUM, DIM), FIRST, precision=precision)
    assert np.allclose(found, table(lambda i: 10000 ** (-i / (DIM // 2 - 1))), atol=1e-6)
    assert vaswani.dtype == found.dtype == np.float32


def test_odd_widths_end_with_zeros() -> None:
    found = sinusoids((NUM, DIM + 1))
    assert found.shape == (NUM, DIM + 1) and not found[:, -1].any()
    assert np.array_equal(found[:, :-1], sinusoids((NUM, DIM)))

"""The graphs of Luong's model compute what its torch module computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.checking.rows import Rows
from models.loading import load_module
from models.storage.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

KINDS: list[dict[str, Any]] = [
    {"score": "dot", "cell": "gru"},
    {"score": "general", "num_layers": 3},
    {"score": "concat", "input_feeding": False},
    {"attention": {"kind": "local-m", "window": 3}, "score": "dot", "input_feeding": False},
    {"attention": {"kind": "local-m", "window": 2}, "score": "concat", "cell": "mut2"},
    {"attention": {"kind": "local-p", "window": 3}, "score": "general", "num_layers": 1},
    {"attention": {"kind": "local-p", "window": 1}, "score": "concat", "hidden_dim": 17},
    {"tied_embeddings": False, "readout_dim": 20, "hidden_dim": 17},
    {"num_layers": 3, "score": "concat", "imported": {"bidirectional": True, "biases": True}},
    {"cell": "gru", "imported": {"bridge": "relu", "readout": "linear", "biases": True}},
    {"score": "dot", "input_feeding": False, "imported": {"bridge": "relu", "bidirectional": True}},
    {
        "attention": {"kind": "local-p", "window": 2},
        "score": "concat",
        "imported": {"biases": True},
    },
    {"tied_embeddings": False, "source_vocab_size": 400},
    {"imported": {"bridge": "linear", "memory_dim": 40, "bidirectional": True}},
    {"score": "concat", "imported": {"bridge": "tanh", "memory_dim": 20, "encoder_layers": 1}},
    {"imported": {"bridge": "top", "memory_dim": 64, "bidirectional": True, "encoder_layers": 3}},
    {"cell": "gru", "input_feeding": False, "imported": {"bridge": "zeros", "memory_dim": 18}},
    {"attention": {"kind": "local-m", "window": 0}},
    {"score": "location", "attention": {"kind": "local-m", "window": 2}},
    {"score": "scaled-dot", "hard_attention": True},
    {"attention": {"kind": "local-p", "window": 3}, "num_layers": 3, "reversed_source": True},
    {"score": "dot", "cell": "gru-reset-before", "reversed_source": True},
]


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("luong", tmp_path, Precision.FP32, **changes)
    examples = examples_of("luong", num_steps=20)  # longer than the shortest sources
    assert largest_error(bundle, tmp_path / "luong", examples) < 2e-5


@pytest.mark.parametrize("changes", KINDS, ids=str)
@torch.inference_mode()
def test_attention_is_that_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("luong", tmp_path, Precision.FP32, **changes)
    examples = examples_of("luong", (9, 4), num_steps=14)
    rows = Rows(open_bundle(bundle), examples.sources, wants_attention=True)
    module: Any = load_module(load_checkpoint(tmp_path / "luong"))
    seen: list[np.ndarray] = []
    module.attention.register_forward_hook(lambda *call: seen.append(call[-1][1][0, 0].numpy()))
    states = [
        module.encode(torch.tensor([source]), torch.tensor([len(source)]))
        for source in examples.sources
    ]
    for column in zip(*examples.targets, strict=True):
        rows.read([[token_id] for token_id in column])
        for row, token_id in enumerate(column):
            _, states[row] = module.step(torch.tensor([token_id]), states[row])
            found, expected = rows.outputs["attention"][row, 0], seen.pop()
            np.testing.assert_allclose(found[: len(expected)], expected, rtol=1e-4, atol=1e-6)
            assert not found[len(expected) :].any()

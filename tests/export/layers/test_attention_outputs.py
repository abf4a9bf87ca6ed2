"""Graphs that tell what tokens look at: torch's own weights, and in all else the graphs without."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundling.running import GraphRows
from models.checkpoint import load_checkpoint
from models.decoding import teacher_forced_log_probabilities
from models.loading import load_module
from serving.bundle.manifest import ATTENTION_OUTPUTS, AttentionKind, Precision
from serving.bundle.opening import Bundle, open_bundle
from tests.export.parity import Examples, examples_of
from tests.tiny import LIKE_BLOOM, LIKE_COMMAND, LIKE_DEEPSEEK, LIKE_GEMMA, LIKE_PHI, tiny_bundle

LENGTHS = (17, 1, 6)
LANGUAGE_MODELS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", LIKE_GEMMA),
    ("llama", LIKE_DEEPSEEK),
    ("llama", {"imported": {"attention_sinks": True}}),
    ("gpt2", {"window": 4}),
    ("gpt-neox", LIKE_PHI),
    ("gpt-neox", LIKE_BLOOM),
    ("gpt-neox", LIKE_COMMAND),
]
TRANSLATORS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {}),
    ("transformer", {"num_kv_heads": 2, "positions": {"kind": "relative"}, "head_dim": 12}),
    (
        "transformer",
        {"positions": {"kind": "relative"}}
        | {"imported": {"layer_positions": True, "encoder_window": 4}},
    ),
    ("transformer-ssru", {"encoder_layers": 3}),
    ("rotary-encoder-decoder", {}),
]


@contextmanager
def softmaxes() -> Iterator[list[np.ndarray]]:
    """Collect what torch weighs by."""
    actual: list[np.ndarray] = []
    original = torch.Tensor.softmax

    def watched(self: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        weights = original(self, *arguments, **named)
        actual.append(weights.detach().float().numpy())
        return weights

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "softmax", watched)
        yield actual


def torch_weights(folder: Path, architecture: str, examples: Examples) -> list[list[np.ndarray]]:
    """Every softmax of each example, in the order in which torch takes them."""
    module = load_module(load_checkpoint(folder / architecture)).eval()
    result = []
    for source, target in zip(examples.sources, examples.targets, strict=True):
        with softmaxes() as actual:
            teacher_forced_log_probabilities(module, source, target)
        result.append(actual)
    return result


def told_by_step(bundle: Bundle, examples: Examples, chunks: list[int]) -> list[np.ndarray]:
    """Read targets piece by piece; return what decoders look at, [heads, target, target]."""
    rows = GraphRows(bundle, examples.sources, wants_attention=True)
    pieces: list[np.ndarray] = []
    start = 0
    for size in chunks:
        rows.read([target[start : start + size] for target in examples.targets])
        pieces.append(rows.outputs["decoder_attention"][..., : len(examples.targets[0])])
        start += size
    return list(np.concatenate(pieces, axis=2))


@pytest.mark.parametrize(("architecture", "changes"), LANGUAGE_MODELS)
def test_a_language_models_attention_is_that_of_torch(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, Precision.FP32, **changes))
    examples = examples_of(architecture, LENGTHS[:1])
    [expected] = torch_weights(tmp_path, architecture, examples)
    length = len(examples.targets[0])  # what sinks get lies behind
    by_layer = np.concatenate([layer[0, ..., :length] for layer in expected])
    for chunks in ([1] * 12, [7, 5]):
        [actual] = told_by_step(bundle, examples, chunks)
        assert actual.shape == by_layer.shape
        assert np.abs(actual - by_layer).max() < 1e-5, chunks


@pytest.mark.parametrize(("architecture", "changes"), TRANSLATORS)
def test_a_transformers_attention_is_that_of_torch(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, Precision.FP32, **changes))
    examples = examples_of(architecture, LENGTHS)
    rows = GraphRows(bundle, examples.sources, wants_attention=True)
    shapes = bundle.manifest.attention_shapes
    num_layers = shapes[AttentionKind.ENCODER].num_layers
    by_torch = torch_weights(tmp_path, architecture, examples)
    for row, expected in enumerate(by_torch):
        length = len(examples.sources[row])
        actual = rows.source_outputs["encoder_attention"][row, :, :length, :length]
        own = np.concatenate([each[0] for each in expected[:num_layers]])
        assert np.abs(actual - own).max() < 1e-5
    if AttentionKind.DECODER not in shapes:
        return
    by_step = told_by_step(bundle, examples, [1] * 12)
    for actual, expected in zip(by_step, by_torch, strict=True):
        own = np.concatenate([each[0] for each in expected[num_layers::2]])
        assert np.abs(actual - own).max() < 1e-5


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [("recurrent-lm", {}), ("key-value-lm", {"window": 5}), ("key-value-lm", {"window": 20})],
)
def test_a_recurrent_models_memory_is_that_of_torch(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, Precision.FP32, **changes))
    examples = examples_of(architecture, LENGTHS[:1])
    [[expected]] = torch_weights(tmp_path, architecture, examples)
    [actual] = told_by_step(bundle, examples, [1] * 12)
    assert not actual[0, 0].any(), "the first token has nothing to look at"
    assert np.abs(actual[0, 1:] - np.tril(expected[0], -1)[1:]).max() < 1e-5


@pytest.mark.parametrize("fusion", ["shallow", "deep"])
def test_lstmns_memories_are_those_of_torch(tmp_path: Path, fusion: str) -> None:
    bundle = open_bundle(tiny_bundle("lstmn", tmp_path, Precision.FP32, fusion=fusion))
    examples = examples_of("lstmn", LENGTHS)
    rows = GraphRows(bundle, examples.sources, wants_attention=True)
    targets = told_by_step(bundle, examples, [1] * 12)
    for row, expected in enumerate(torch_weights(tmp_path, "lstmn", examples)):
        length = len(examples.sources[row])
        actual = rows.source_outputs["encoder_attention"][row, 0, :length, :length]
        steps = expected[length:]  # two of each: of the source, and of the target's own memory
        assert not actual[0].any() and not targets[row][0, 0].any()
        for position, weights in enumerate(expected[1:length], 1):
            assert np.abs(actual[position, :position] - weights[0]).max() < 1e-5
        for step in range(1, 12):
            own = targets[row][0, step, :step]
            pair = [each[0] for each in steps[2 * step : 2 * step + 2] if each.shape[-1] == step]
            assert any(np.abs(own - each).max() < 1e-5 for each in pair)


@pytest.mark.parametrize(
    ("architecture", "precision"),
    [
        ("transformer", Precision.INT8),
        ("transformer", Precision.FP16),
        ("lstmn", Precision.FP16),
        ("llama", Precision.INT8),
        ("llama", Precision.FP16),
        ("key-value-lm", Precision.FP32),
    ],
)
def test_nothing_else_is_other_than_without(
    tmp_path: Path, architecture: str, precision: Precision
) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, precision))
    is_prefilled = architecture == "llama"
    examples = examples_of(architecture, LENGTHS[:1] if is_prefilled else LENGTHS)
    plain = GraphRows(bundle, examples.sources)
    attending = GraphRows(bundle, examples.sources, wants_attention=True)
    same_states(plain, attending)
    start = 0
    for size in [5, 4, 1, 1, 1] if is_prefilled else [1] * 12:
        for rows in (plain, attending):
            rows.read([target[start : start + size] for target in examples.targets])
        start += size
        shapes = {ATTENTION_OUTPUTS[kind][1] for kind in bundle.manifest.attention_shapes}
        assert {*attending.outputs} - {*plain.outputs} == shapes - {"encoder_attention"}
        for name, expected in plain.outputs.items():
            assert np.array_equal(attending.outputs[name], expected), name
        same_states(plain, attending)


def same_states(plain: GraphRows, attending: GraphRows) -> None:
    for name, expected in plain.states.items():
        assert np.array_equal(attending.states[name], expected), name


@pytest.mark.parametrize("architecture", ["transformer", "lstmn", "llama"])
def test_weights_are_a_distribution_of_what_can_be_seen(tmp_path: Path, architecture: str) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, Precision.FP16))
    examples = examples_of(architecture, LENGTHS[:1])
    [actual] = told_by_step(bundle, examples, [1] * 12)
    assert (np.triu(actual, 1) == 0).all() and (actual >= 0).all()
    assert np.abs(actual[:, 1:].sum(-1) - 1).max() < 2e-3

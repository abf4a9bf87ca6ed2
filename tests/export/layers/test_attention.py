"""The step graph with attention: torch's attention, and in all else the step graph, to the bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.running import GraphRows
from export.bundling.weight_file import WEIGHTS_FILE, WeightFile
from export.bundling.writer import build_model
from export.layers.basic import head_layout
from models.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import Examples, examples_of
from tests.grid import pairwise
from tests.tiny import tiny_bundle, tiny_checkpoint

SPAN = 48  # beyond the longest source
FAMILIES = ("bahdanau", "transformer", "transformer-ssru")


def attention_of(bundle: Path, examples: Examples) -> np.ndarray:
    """[batch, target, heads, source]"""
    rows = GraphRows(open_bundle(bundle), examples.sources, span=SPAN, wants_attention=True)
    actual = []
    for column in zip(*examples.targets, strict=True):
        rows.read([[token_id] for token_id in column])
        actual.append(rows.outputs["attention"])
    return np.stack(actual, axis=1)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("transformer", {}),
        ("transformer", {"decoder_layers": 3, "num_heads": 2, "norm": {"place": "post"}}),
        ("transformer", {"num_kv_heads": 2, "positions": {"kind": "relative"}}),
        ("transformer", {"num_kv_heads": 1}),
        ("transformer", {"head_dim": 12}),
        ("transformer-ssru", {}),
        ("bahdanau", {}),
        ("bahdanau", {"hidden_dim": 17, "attention_dim": 9}),
    ],
)
def test_attention_is_that_of_torch(
    tmp_path: Path, architecture: str, changes: dict[str, Any]
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, Precision.FP32, **changes)
    examples = examples_of(architecture)
    expected = torch_attention(tmp_path / architecture, examples)
    for ours, theirs in zip(attention_of(bundle, examples), expected, strict=True):
        assert np.abs(ours[..., : theirs.shape[-1]] - theirs).max() < 1e-6


@pytest.mark.parametrize("architecture", FAMILIES)
def test_attention_in_half_precision_is_near_that_of_torch(
    tmp_path: Path, architecture: str
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, Precision.FP16)
    examples = examples_of(architecture)
    expected = torch_attention(tmp_path / architecture, examples)
    for ours, theirs in zip(attention_of(bundle, examples), expected, strict=True):
        assert np.abs(ours[..., : theirs.shape[-1]] - theirs).max() < 0.01


@pytest.mark.parametrize("architecture", FAMILIES)
def test_attention_is_a_distribution_over_each_rows_own_source(
    tmp_path: Path, architecture: str
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, Precision.INT8)
    examples = examples_of(architecture)
    for attention, source in zip(attention_of(bundle, examples), examples.sources, strict=True):
        assert attention.shape[-1] == SPAN
        assert (attention[..., len(source) :] == 0).all()
        assert (attention >= 0).all()
        assert np.abs(attention.sum(-1, dtype=np.float64) - 1).max() < 1e-6


LENGTHS = [[9], [17, 1, 40, 6], [33, 5, 1, 1, 12, 30, 2, 16, 40, 7]]


@pytest.mark.parametrize(
    ("architecture", "precision", "lengths"),
    pairwise(FAMILIES, [Precision.FP32, Precision.INT8, Precision.FP16], LENGTHS),
)
def test_all_other_outputs_are_those_of_the_step_graph(
    tmp_path: Path, architecture: str, precision: Precision, lengths: list[int]
) -> None:
    bundle = open_bundle(tiny_bundle(architecture, tmp_path, precision))
    examples = examples_of(architecture, tuple(lengths))
    plain = GraphRows(bundle, examples.sources)
    aligning = GraphRows(bundle, examples.sources, wants_attention=True)
    for column in zip(*examples.targets, strict=True):
        for rows in (plain, aligning):
            rows.read([[token_id] for token_id in column])
        assert "attention" in aligning.outputs.keys() - plain.outputs.keys()
        for name, expected in (plain.outputs | plain.states).items():
            actual = (aligning.outputs | aligning.states)[name]
            assert np.array_equal(actual, expected), name


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_graph_has_no_large_weights_of_its_own(
    tmp_path: Path, architecture: str, precision: Precision
) -> None:
    bundle = tiny_bundle(architecture, tmp_path, precision)
    model = build_model(load_checkpoint(tmp_path / architecture), precision)
    weights = WeightFile(tmp_path)
    for graph in model.graphs:
        if not graph.name.endswith("_attention"):
            for name, value in graph.model.graph.initializers.items():
                assert value.const_value is not None
                weights.store(name, value.const_value.numpy())
    weights.close()
    assert (bundle / WEIGHTS_FILE).stat().st_size == (tmp_path / WEIGHTS_FILE).stat().st_size


def test_heads_to_align_by_are_those_of_the_last_layer(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path, decoder_layers=3, num_heads=2)
    assert build_model(checkpoint, Precision.FP32).alignment_heads == (4, 5)


def torch_attention(checkpoint: Path, examples: Examples) -> list[np.ndarray]:
    """Compute attention of each example, in double precision: [target, heads, source]."""
    import torch

    from models.batch import TranslationBatch
    from models.loading import load_module

    module = load_module(load_checkpoint(checkpoint)).double().eval()
    attention = WATCH[module.config.architecture](module)
    actual = []
    for source, target in zip(examples.sources, examples.targets, strict=True):
        ids = torch.tensor([target])
        with torch.inference_mode():
            module(TranslationBatch(ids, ids, torch.tensor([source]), torch.tensor([len(source)])))
        actual.append(attention())
    return actual


def watch_heads(module: Any) -> Any:
    """softmax(Q K^T / sqrt(head_dim)) of every decoder layer's projections."""
    layers = [layer.cross_attention for layer in module.decoder.layers]
    seen: dict[Any, Any] = {}
    for linear in [part for layer in layers for part in (layer.query, layer.key)]:
        linear.register_forward_hook(lambda linear, _, output: seen.update({linear: output[0]}))

    def heads_of(layer: Any, linear: Any) -> np.ndarray:
        heads = seen[linear].unflatten(-1, (-1, layer.head_dim)).transpose(0, 1).numpy()
        return heads.repeat(layer.num_heads // len(heads), axis=0)

    def attention() -> np.ndarray:
        by_layer = []
        for layer in layers:
            queries, keys = heads_of(layer, layer.query), heads_of(layer, layer.key)
            scores = np.exp(queries @ keys.transpose(0, 2, 1) / np.sqrt(layer.head_dim))
            by_layer.append(scores / scores.sum(-1, keepdims=True))
        return np.concatenate(by_layer).transpose(1, 0, 2)

    return attention


def watch_weights(module: Any) -> Any:
    """The weights that the attention module itself returns, one target position after another."""
    seen: list[np.ndarray] = []
    module.attention.register_forward_hook(lambda _, __, output: seen.append(output[1].numpy()))

    def attention() -> np.ndarray:
        weights = np.stack(seen)
        seen.clear()
        return weights

    return attention


WATCH = {
    "bahdanau": watch_weights,
    "transformer": watch_heads,
    "transformer-ssru": watch_heads,
}


@pytest.mark.parametrize("size", range(2, 65))
def test_pairs_stay_pairs_and_the_rest_is_kept(size: int) -> None:
    for pairs in range(size // 2 + 1):
        layout = head_layout(size, pairs)
        places, apart = layout.places, -(-pairs // 8) * 8
        assert layout.padded_size % (16 if pairs else 8) == 0
        assert len({*places}) == layout.size == size
        assert max(places) < layout.padded_size >= 2 * apart
        assert all(places[i] == i and places[i + pairs] == i + apart for i in range(pairs))
        still = [place % apart for place in places[2 * pairs :] if place < 2 * apart]
        assert all(pair >= pairs for pair in still), "they would be rotated"


def test_weights_are_spread_head_by_head() -> None:
    weight = np.arange(1, 25, dtype=np.float32).reshape(12, 2)
    spread = head_layout(6, 3).spread(weight).reshape(2, 16, 2)
    assert np.array_equal(spread[:, [0, 1, 2, 8, 9, 10]], weight.reshape(2, 6, 2))
    assert np.count_nonzero(spread) == weight.size


def test_heads_that_fit_are_left_alone() -> None:
    weight = np.ones((32, 4), np.float32)
    assert head_layout(16, 8).spread(weight) is weight
    assert head_layout(8).spread(weight) is weight

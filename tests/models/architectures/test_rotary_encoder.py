"""The graph of an encoder that rotates computes what its module computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.architectures.registry import ModelConfigError, parse_config
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from tests.export.graph.widening import widened
from tests.export.layers.test_attention_outputs import softmaxes
from tests.export.texts import (
    LIKE_EMBEDDING_GEMMA,
    LIKE_NOMIC,
    LIKE_QWEN_EMBEDDING,
    encoded,
    random_texts,
)
from tests.models.architectures.test_transformer_encoder import TEXTS, of_graph, of_torch
from tests.tiny import CONFIGS, tiny_bundle

NAME = "rotary-encoder"
OPTIONS: list[dict[str, Any]] = [
    {},
    LIKE_NOMIC,
    LIKE_QWEN_EMBEDDING,
    LIKE_EMBEDDING_GEMMA,
]


def exported(
    folder: Path, precision: Precision, options: dict[str, Any]
) -> tuple[Bundle, list[np.ndarray]]:
    """Return a bundle, and what torch makes of the texts."""
    bundle = open_bundle(tiny_bundle(NAME, folder, precision, **options))
    return bundle, of_torch(folder / NAME, TEXTS)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_graph_computes_what_torch_computes(options: dict[str, Any], tmp_path: Path) -> None:
    bundle, expected = exported(tmp_path, Precision.FP32, options)
    assert np.abs(of_graph(bundle, TEXTS) - expected).max() < 1e-5


@pytest.mark.parametrize("options", OPTIONS)
def test_attention_is_that_of_torch(options: dict[str, Any], tmp_path: Path) -> None:
    bundle, _ = exported(tmp_path, Precision.FP32, options)
    maps = encoded(bundle, TEXTS)["encoder_attention"]
    for actual, text in zip(maps, TEXTS, strict=True):
        length = len(text[0])
        with softmaxes() as expected:
            of_torch(tmp_path / NAME, [text])
        by_torch = np.concatenate([layer[0] for layer in expected])
        assert actual.shape[0] == len(by_torch) and len(expected) == 3
        assert np.abs(actual[:, :length, :length] - by_torch).max() < 1e-5
        assert not actual[:, :, length:].any()


@pytest.mark.parametrize("options", OPTIONS[:4])
def test_16_bits_err_by_rounding(options: dict[str, Any], tmp_path: Path) -> None:
    half, expected = exported(tmp_path, Precision.FP16, options)
    assert np.abs(of_graph(half, TEXTS) - expected).max() < 0.01
    brain, _ = exported(tmp_path, Precision.BF16, options)
    wide = open_bundle(widened(brain.folder, tmp_path / "wide"))
    assert np.abs(of_graph(wide, TEXTS) - expected).max() < 0.06


@pytest.mark.parametrize(("precision", "least"), [(Precision.INT8, 0.998), (Precision.INT4, 0.95)])
def test_integers_keep_the_direction(precision: Precision, least: float, tmp_path: Path) -> None:
    bundle, expected = exported(tmp_path, precision, {})
    actual = of_graph(bundle, TEXTS)
    norms = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((actual * expected).sum(1) / norms).min() > least


def test_tokens_out_of_reach_change_no_bit(tmp_path: Path) -> None:
    """Three windows of 5 reach 12 positions far, and a causal model reads nothing that follows."""
    ids, types = random_texts((40,))[0]
    later = (ids[:20] + ids[:19:-1], types)
    everywhere = {"window": {"size": 5, "layers": [0, 1, 2]}, "pooling": ["cls"]}
    for options in (everywhere, LIKE_QWEN_EMBEDDING | {"pooling": ["cls"]}):
        bundle, _ = exported(tmp_path / str(len(options)), Precision.FP32, options)
        one, other = of_graph(bundle, [(ids, types), later])
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"window": {"size": 5, "layers": [3]}},
            "window.layers [3] must be less than num_layers 3",
        ),
        ({"head_dim": 5}, "rotation: 3 pairs are too many for heads of 5"),
        ({"num_kv_heads": 3}, "num_heads 4 must be a multiple of num_kv_heads 3"),
        (
            {"norm": {"place": "post"}, "imported": {"sandwich_norms": True}},
            "imported.sandwich_norms needs norm.place pre",
        ),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        parse_config({"architecture": NAME, "vocab_size": 50, **CONFIGS[NAME], **options})
    assert problem in caught.value.problems

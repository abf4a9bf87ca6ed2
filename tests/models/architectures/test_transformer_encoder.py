"""The graph of a Transformer's encoder computes what its module computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.running import TextGraph
from export.bundling.verify import TextVerifier
from models.checkpoint import load_checkpoint
from models.decoding import vectors_of
from models.loading import load_encoder
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from tests.export.graph.widening import widened
from tests.export.layers.test_attention_outputs import softmaxes
from tests.export.texts import (
    LIKE_ALBERT,
    LIKE_DEBERTA,
    LIKE_DEBERTA_XLARGE,
    LIKE_MPNET,
    MASKED_WORDS,
    RERANKER,
    TAGGER,
    Text,
    encoded,
    random_texts,
)
from tests.tiny import tiny_bundle

TEXTS = random_texts((17, 1, 40, 6))
EVERY_POOLING = {"pooling": ["cls", "last", "max", "mean", "mean_sqrt_length"]}
LABELS: dict[str, Any] = {
    "pooling": ["cls"],
    "head": {
        "kind": "labels",
        "labels": ["a", "b", "c"],
        "dense": [{"dim": 24, "activation": "relu"}, {"dim": 9, "bias": False}],
    },
}
OPTIONS: list[dict[str, Any]] = [
    {},
    EVERY_POOLING,
    LABELS,
    LIKE_MPNET,
    RERANKER,
    {"activation": "relu", "head_dim": 12, "norm_epsilon": 1e-5},
    LIKE_ALBERT,
    LIKE_DEBERTA,
    LIKE_DEBERTA_XLARGE,
    {"head_dim": 12, "distances": {"kind": "disentangled", "position_to_content": False}},
    {"distances": {"kind": "disentangled", "num_buckets": 5, "content_to_position": False}},
]


def exported(
    folder: Path, precision: Precision, options: dict[str, Any]
) -> tuple[Bundle, list[np.ndarray]]:
    """Give a bundle, and what torch makes of the texts."""
    name = "transformer-encoder"
    bundle = open_bundle(tiny_bundle(name, folder, precision, **options))
    return bundle, of_torch(folder / name, TEXTS)


def of_torch(checkpoint: Path, texts: list[Text]) -> list[np.ndarray]:
    ids, types = map(list, zip(*texts, strict=True))
    return vectors_of(load_encoder(load_checkpoint(checkpoint)), ids, types)


def of_graph(bundle: Bundle, texts: list[Text]) -> np.ndarray:
    ids, types = map(list, zip(*texts, strict=True))
    [actual] = TextGraph(bundle).run(ids, types).values()
    return actual


@pytest.mark.parametrize("options", OPTIONS)
def test_the_graph_computes_what_torch_computes(options: dict[str, Any], tmp_path: Path) -> None:
    bundle, expected = exported(tmp_path, Precision.FP32, options)
    assert np.abs(of_graph(bundle, TEXTS) - expected).max() < 1e-5


@pytest.mark.parametrize(
    "options", [{}, LIKE_MPNET, {"head_dim": 12}, LIKE_DEBERTA, LIKE_DEBERTA_XLARGE]
)
def test_attention_is_that_of_torch(options: dict[str, Any], tmp_path: Path) -> None:
    bundle, _ = exported(tmp_path, Precision.FP32, options)
    maps = encoded(bundle, TEXTS)["encoder_attention"]
    for actual, text in zip(maps, TEXTS, strict=True):
        length = len(text[0])
        with softmaxes() as expected:
            of_torch(tmp_path / "transformer-encoder", [text])
        by_torch = np.concatenate([layer[0] for layer in expected])
        assert actual.shape[0] == len(by_torch) and len(expected) > 1
        assert np.abs(actual[:, :length, :length] - by_torch).max() < 1e-5
        assert not actual[:, :, length:].any()


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16, Precision.INT8])
def test_telling_changes_nothing_else(precision: Precision, tmp_path: Path) -> None:
    bundle, _ = exported(tmp_path, precision, {})
    assert np.array_equal(of_graph(bundle, TEXTS), encoded(bundle, TEXTS)["embedding"])


def test_segments_and_positions_count(tmp_path: Path) -> None:
    bundle, _ = exported(tmp_path, Precision.FP32, {})
    ids, types = random_texts((9,))[0]
    texts = [(ids, types), (ids, [0] * 9), (ids[::-1], types)]
    one, without, backwards = of_graph(bundle, texts)
    assert np.abs(one - without).max() > 0.01
    assert np.abs(one - backwards).max() > 0.01


@pytest.mark.parametrize("options", [{}, LABELS, LIKE_MPNET, LIKE_DEBERTA, LIKE_DEBERTA_XLARGE])
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


def test_the_manifest_says_what_comes_out(tmp_path: Path) -> None:
    bundle, _ = exported(tmp_path, Precision.FP32, LIKE_MPNET)
    spec = bundle.manifest.encoder
    assert spec is not None and (spec.dimension, spec.is_normalised) == (17, True)
    assert [each.name for each in bundle.manifest.graphs["encode"].inputs] == [
        "source_ids",
        "source_lengths",
    ]
    labels, _ = exported(tmp_path / "labels", Precision.FP32, LABELS)
    spec = labels.manifest.encoder
    assert spec is not None and (spec.labels, spec.activation) == (("a", "b", "c"), "softmax")
    assert spec.dimension is None


@pytest.mark.parametrize(
    ("precision", "most"), [(Precision.FP32, 1e-5), (Precision.FP16, 0.01), (Precision.INT8, 0.1)]
)
@pytest.mark.parametrize("options", [TAGGER, MASKED_WORDS])
def test_heads_of_tokens_compute_what_torch_computes(
    options: dict[str, Any], precision: Precision, most: float, tmp_path: Path
) -> None:
    bundle, _ = exported(tmp_path, precision, options)
    checkpoint = load_checkpoint(tmp_path / "transformer-encoder")
    assert 0 < TextVerifier(checkpoint, bundle).compare(None, 0).random_ids.largest < most


def test_only_masked_words_are_scored(tmp_path: Path) -> None:
    bundle, _ = exported(tmp_path, Precision.FP32, MASKED_WORDS)
    actual = encoded(bundle, [([5, 9, 7, 9, 8], [0] * 5), ([5, 6], [0] * 2)])
    assert actual["top_ids"].shape == (2, 5, 20) and bundle.manifest.window == 20
    is_scored = actual["top_logp"].any(axis=2)
    assert is_scored.tolist() == [[False, True, False, True, False], [False] * 5]


def test_the_proof_at_export_compares_random_ids_and_texts(tmp_path: Path) -> None:
    bundle, _ = exported(tmp_path, Precision.FP32, LABELS)
    checkpoint = load_checkpoint(tmp_path / "transformer-encoder")
    (tmp_path / "test.txt").write_text("one text\n\nanother, which is longer than the first one\n")
    parity = TextVerifier(checkpoint, bundle).compare(tmp_path / "test.txt", 10)
    assert parity.test_text is not None and parity.test_text.num_texts == 2
    assert parity.random_ids.largest < 1e-5 and parity.test_text.largest < 1e-5
    assert parity.as_markdown().startswith("- logits of random ids: largest")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match="holds no text"):
        TextVerifier(checkpoint, bundle).compare(tmp_path / "empty.txt", 10)

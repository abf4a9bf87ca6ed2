"""The Transformers' graphs compute what their torch modules compute."""

from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

RELATIVE: dict[str, Any] = {"positions": {"kind": "relative"}}
T5: dict[str, Any] = {
    "positions": {"kind": "relative", "num_buckets": 8, "max_distance": 11},
    "norm": {"kind": "rms"},
}
T5 |= {"gated_ffn": True, "head_dim": 16, "num_heads": 3, "imported": {"biases": False}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": {"place": "post"}},
        {"activation": "gelu", "positions": {"kind": "learned"}},
        {"tied_embeddings": False, "activation": "gelu", "norm": {"place": "post"}},
        {"num_heads": 1, "encoder_layers": 1, "decoder_layers": 3, "vocab_size": 300},
        {"num_kv_heads": 1},
        {"num_kv_heads": 2, "positions": {"kind": "learned"}},
        RELATIVE,
        RELATIVE | {"num_kv_heads": 2, "norm": {"place": "post"}},
        RELATIVE | {"num_kv_heads": 1, "num_heads": 8, "d_model": 64},
        {"norm": {"epsilon": 0.1}, "imported": {"embedding_norm": True}},
        {
            "activation": "swish",
            "gated_ffn": True,
            "imported": {"output_bias": True, "embedding_scale": 1.0},
        },
        {"source_vocab_size": 300, "tied_embeddings": False, "imported": {"final_norm": False}},
        {
            "head_dim": 16,
            "num_kv_heads": 2,
            "norm": {"place": "post"},
            "imported": {"final_norm": True},
        },
        {"positions": {"kind": "none"}},
        {"positions": {"kind": "linear"}, "norm": {"place": "post"}},
        {"positions": {"kind": "linear"}, "d_model": 36, "num_heads": 6, "num_kv_heads": 3},
        T5,
        T5 | {"head_dim": 12},
        {"d_model": 60, "num_heads": 3, "positions": {"kind": "relative"}},
    ],
)
def test_log_probabilities_are_those_of_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32, **changes)
    assert largest_error(bundle, tmp_path / "transformer", examples_of("transformer")) < 2e-5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "activation": "gelu",
            "decoder_layers": 1,
            "positions": {"kind": "learned"},
            "norm": {"place": "post"},
        },
        {"num_kv_heads": 2, "tied_embeddings": False, "decoder_layers": 3},
        {"head_dim": 12},
    ],
)
def test_log_probabilities_with_a_recurrent_decoder_are_those_of_torch(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    bundle = tiny_bundle("transformer-ssru", tmp_path, Precision.FP32, **changes)
    checkpoint = tmp_path / "transformer-ssru"
    assert largest_error(bundle, checkpoint, examples_of("transformer-ssru")) < 2e-5


def test_distances_beyond_the_farthest_are_one(tmp_path: Path) -> None:
    limits = {"max_source_tokens": 256, "max_target_tokens": 192}
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32, **RELATIVE, **limits)
    examples = examples_of("transformer", lengths=(240, 130, 3), num_steps=180)
    assert largest_error(bundle, tmp_path / "transformer", examples) < 2e-5


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.INT8])
@pytest.mark.parametrize(
    "changes",
    [
        {"num_kv_heads": 1},
        RELATIVE,
        RELATIVE | {"num_kv_heads": 2, "norm": {"place": "post"}},
        {"positions": {"kind": "linear"}},
        T5,
        T5 | {"head_dim": 12},
        {"d_model": 60, "num_heads": 3},
    ],
)
def test_low_precision_is_near_torch(
    tmp_path: Path, changes: dict[str, Any], precision: Precision
) -> None:
    bundle = tiny_bundle("transformer", tmp_path, precision, **changes)
    assert_errs_by_rounding(bundle, tmp_path / "transformer", examples_of("transformer"))

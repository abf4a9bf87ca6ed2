"""The graphs of an encoder-decoder that rotates compute what its module computes."""

from pathlib import Path
from typing import Any

import pytest

from models.architectures.registry import ModelConfigError, parse_config
from serving.bundle.manifest import Precision
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error
from tests.tiny import CONFIGS, tiny_bundle

NAME = "rotary-encoder-decoder"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"head_dim": 12, "num_kv_heads": 3, "window": None, "tied_embeddings": False},
    {
        "attention_cap": None,
        "rotation": {"frequencies": [0.9, 0.1, 0.01], "magnitude": 1.2},
        "norm": {"kind": "layer", "epsilon": 0.1},
        "encoder": {"d_model": 64, "head_dim": 24, "num_kv_heads": 2, "ffn_dim": 50},
    },
]


@pytest.mark.parametrize("options", OPTIONS)
def test_log_probabilities_are_those_of_torch(options: dict[str, Any], tmp_path: Path) -> None:
    bundle = tiny_bundle(NAME, tmp_path, Precision.FP32, **options)
    assert largest_error(bundle, tmp_path / NAME, examples_of(NAME)) < 2e-5


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.INT8])
def test_low_precision_is_near_torch(precision: Precision, tmp_path: Path) -> None:
    bundle = tiny_bundle(NAME, tmp_path, precision)
    assert_errs_by_rounding(bundle, tmp_path / NAME, examples_of(NAME))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"window": {"size": 5, "layers": [3]}},
            "window.layers [3] must be less than num_layers 3",
        ),
        ({"encoder": {"d_model": 42}}, "encoder: d_model 42 must be a multiple of num_heads 4"),
        ({"head_dim": 5, "window": None}, "rotation: 3 pairs are too many for heads of 5"),
        ({"num_kv_heads": 2}, "num_heads 3 must be a multiple of num_kv_heads 2"),
        ({"norm": {"place": "post"}}, "norm.place: input should be 'pre' (got 'post')"),
        (
            {"positions": {"kind": "learned"}},
            "positions: rotary-encoder-decoder has no such option",
        ),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        parse_config({"architecture": NAME, "vocab_size": 50, **CONFIGS[NAME], **options})
    [actual] = caught.value.problems
    assert problem in actual

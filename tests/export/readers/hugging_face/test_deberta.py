"""DeBERTa's options: each is as `transformers` has it, or refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from export.bundling.writer import export_checkpoint
from export.readers.hugging_face.families import read_checkpoint
from models.layers.position_tables import disentangled_buckets
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.readers.common.sentencepiece_models import trained
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.encoders import LETTERS, random_model, save
from tests.export.readers.hugging_face.test_encoders import (
    LARGEST_ERROR,
    imported,
    laid_out,
    of_transformers,
)
from tests.export.texts import encoded

RANDOM = np.random.default_rng(0)
PAIRS = [
    ("".join(RANDOM.choice([*LETTERS], 1 + n % 17)), "".join(RANDOM.choice([*LETTERS], 20 - n)))
    for n in range(20)
]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("deberta", {"pos_att_type": ["c2p"], "max_relative_positions": 9}),
    ("deberta", {"pos_att_type": "p2c", "position_biased_input": True}),
    ("deberta-v2", {"share_att_key": False, "norm_rel_ebd": "none"}),
    ("deberta-v2", {"share_att_key": False, "pos_att_type": "c2p", "position_buckets": 9}),
    ("deberta-v2", {"pos_att_type": ["p2c"], "position_buckets": -1, "max_relative_positions": 9}),
    ("deberta-v2", {"position_biased_input": True, "type_vocab_size": 2}),
    ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "gelu"}),
    ("deberta-v2", {"conv_kernel_size": 5, "num_hidden_layers": 1, "type_vocab_size": 2}),
    ("deberta-v2", {"conv_kernel_size": 1, "conv_act": "relu", "norm_rel_ebd": "none"}),
    ("deberta-v2", {"pooler_hidden_act": "tanh", "hidden_act": "gelu_new", "layer_norm_eps": 0.1}),
]


@pytest.mark.parametrize(("family", "options"), OPTIONS)
def test_options_are_those_of_transformers(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model = random_model(family, 3, **options)
    bundle = imported(save(model, tmp_path / "theirs"))
    found = encoded(bundle, [laid_out(bundle, family, *pair) for pair in PAIRS])["logits"]
    expected = of_transformers(model, family, PAIRS)[0].logits.numpy()
    assert np.abs(found - expected).max() < LARGEST_ERROR


@pytest.mark.parametrize("family", ["albert", "deberta", "deberta-v2", "electra"])
def test_integers_err_by_rounding(family: str, tmp_path: Path) -> None:
    model = random_model(family, 3)
    checkpoint = read_checkpoint(save(model, tmp_path / "theirs"))
    export_checkpoint(checkpoint, tmp_path / "bundle", Precision.INT8)
    bundle = open_bundle(tmp_path / "bundle")
    found = encoded(bundle, [laid_out(bundle, family, *pair) for pair in PAIRS])["logits"]
    expected = of_transformers(model, family, PAIRS)[0].logits
    error = torch.tensor(found).log_softmax(-1) - expected.log_softmax(-1)
    assert error.abs().max() < 0.05


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"conv_kernel_size": 3, "conv_groups": 2}, "conv_groups"),
        ({"conv_kernel_size": 3, "conv_act": "mish"}, "conv_act"),
    ],
)
def test_other_convolutions_are_refused(values: dict[str, Any], word: str, tmp_path: Path) -> None:
    save(random_model("deberta-v2"), tmp_path)
    change(tmp_path / "config.json", **values)
    assert word in "; ".join(problems_of(tmp_path))


def test_attention_is_that_of_transformers(tmp_path: Path) -> None:
    model = random_model("deberta-v2")
    model.config.output_attentions = True
    bundle = imported(save(model, tmp_path / "theirs"))
    text = PAIRS[3][1]
    [found] = encoded(bundle, [laid_out(bundle, "deberta-v2", text)])["encoder_attention"]
    layers = of_transformers(model, "deberta-v2", [text])[0].attentions
    expected = torch.cat([layer[0] for layer in layers]).numpy()
    length = expected.shape[-1]
    assert np.abs(found[:, :length, :length] - expected).max() < LARGEST_ERROR


@pytest.mark.parametrize(
    ("num_buckets", "max_distance"),
    [(256, 512), (128, 512), (64, 512), (256, 1024), (32, 128), (6, 40), (5, 40), (2, 3)],
)
def test_buckets_are_those_of_transformers(num_buckets: int, max_distance: int) -> None:
    length = 600
    offsets = torch.arange(1 - length, length)
    expected = make_log_bucket_position(offsets, num_buckets, max_distance).long() + num_buckets
    found = disentangled_buckets(length, num_buckets, max_distance)
    assert found == expected.clamp(0, 2 * num_buckets - 1).tolist()


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("deberta", {"talking_head": True}),
        ("deberta", {"relative_attention": False}),
        ("deberta-v2", {"relative_attention": None}),
        ("deberta-v2", {"conv_kernel_size": 4}),
        ("deberta-v2", {"embedding_size": 16}),
        ("deberta-v2", {"attention_head_size": 16}),
        ("deberta-v2", {"pooler_hidden_act": "mish"}),
        ("deberta-v2", {"pos_att_type": "p2p|c2p"}),
        ("deberta-v2", {"pos_att_type": None}),
        ("albert", {"num_hidden_groups": 2}),
        ("albert", {"inner_group_num": 2}),
    ],
)
def test_what_would_compute_another_model_is_refused(
    family: str, values: dict[str, Any], tmp_path: Path
) -> None:
    save(random_model(family), tmp_path)
    change(tmp_path / "config.json", **values)
    assert next(iter(values)) in "; ".join(problems_of(tmp_path))


def test_a_tokenizer_that_parts_punctuation_is_refused(tmp_path: Path) -> None:
    folder = save(random_model("deberta-v2"), tmp_path)
    (folder / "tokenizer_config.json").write_text('{"split_by_punct": true, "vocab_type": "spm"}')
    assert read_checkpoint(folder).notes == ()
    (folder / "tokenizer.json").unlink()
    (folder / "spm.model").write_bytes(trained(unk_piece="[UNK]"))
    assert "split_by_punct" in "; ".join(problems_of(folder))

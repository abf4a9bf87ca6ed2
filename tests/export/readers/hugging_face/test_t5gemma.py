"""What files of T5Gemma say of their two sides is used as in `transformers`, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from export.readers.hugging_face.families import read_checkpoint
from tests.export.readers.hugging_face.changing import change, change_weights, problems_of
from tests.export.readers.hugging_face.test_tied_tables import (
    TOLERANCE,
    error_of_translator,
    other_table,
)
from tests.export.readers.hugging_face.translators import FAMILIES, save

TABLE, OUTPUT = "model.decoder.embed_tokens.weight", "lm_head.out_proj.weight"
OF_A_SIDE: dict[str, Any] = {
    "attention_bias": True,
    "attn_logit_softcapping": 1.0,
    "final_logit_softcapping": 1.0,
    "hidden_activation": "relu",
    "layer_types": ["full_attention", "sliding_attention"],
    "query_pre_attn_scalar": 3,
    "rms_norm_eps": 0.3,
    "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 9.0},
    "sliding_window": 1,
    "unknown_scale": 3.0,
}
REFUSED_ALONE = {"attn_logit_softcapping", "hidden_activation", "rms_norm_eps", "rope_parameters"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(FAMILIES["t5gemma"], tmp_path)
    return tmp_path


def change_sides(folder: Path, *sides: str, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(folder / "config.json", **{side: config[side] | values for side in sides})


@pytest.mark.parametrize(
    "sides", [("encoder",), ("decoder",), ("encoder", "decoder")], ids="+".join
)
@pytest.mark.parametrize("key", OF_A_SIDE)
def test_no_key_of_a_side_changes_a_model_silently(
    key: str, sides: tuple[str, ...], folder: Path
) -> None:
    change_sides(folder, *sides, **{key: OF_A_SIDE[key]})
    if key == "attention_bias" or (key in REFUSED_ALONE and len(sides) == 1):
        assert key in "; ".join(problems_of(folder))
        return
    assert len(read_checkpoint(folder).notes) == (key == "unknown_scale")
    assert error_of_translator(folder) < TOLERANCE


def test_keys_of_the_published_files(folder: Path) -> None:
    said: dict[str, Any] = {"rope_parameters": None, "rope_theta": 500.0}
    said |= {"classifier_dropout_rate": 0.0, "cross_attention_hidden_size": 32}
    change_sides(folder, "encoder", "decoder", **said)
    assert read_checkpoint(folder).notes == () and error_of_translator(folder) < TOLERANCE


def test_an_output_that_is_stored_though_shared_is_used(folder: Path) -> None:
    change_weights(folder, **{OUTPUT: load_file(folder / "model.safetensors")[TABLE].copy()})
    assert read_checkpoint(folder).notes == () and error_of_translator(folder) < TOLERANCE
    change_weights(folder, **{OUTPUT: other_table(folder, TABLE)})
    [note] = read_checkpoint(folder).notes
    assert f"{OUTPUT} is stored with other numbers" in note
    assert error_of_translator(folder) < TOLERANCE


def test_a_chat_template_that_is_not_used_is_named(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    [note] = read_checkpoint(folder).notes
    assert "its chat template is not used" in note


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"model_type": "t5gemma2"},
            "is not supported: its decoder attends to source and target by",
        ),
        ({"is_encoder_decoder": False}, "is_encoder_decoder False"),
        ({"architectures": ["T5GemmaForTokenClassification"]}, "is none of ...ForConditionalG"),
        ({"decoder": None}, "hidden_size is missing"),
    ],
)
def test_other_models_are_refused(values: dict[str, Any], problem: str, folder: Path) -> None:
    change(folder / "config.json", **values)
    assert problem in "; ".join(problems_of(folder))

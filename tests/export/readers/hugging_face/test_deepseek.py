"""Folders of DeepSeek's models as they are published: what is read, dropped and refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.readers.hugging_face.families import read_checkpoint
from tests.export.readers.hugging_face.changing import change, change_weights, problems_of
from tests.export.readers.hugging_face.language_models import random_model, save

# options that published files have, and transformers does not write
PUBLISHED = {"aux_loss_alpha": 0.001, "moe_layer_freq": 1, "seq_aux": True, "ep_size": 1}
V2 = PUBLISHED | {"scoring_func": "softmax", "norm_topk_prob": False, "n_group": 1, "topk_group": 1}
V2 |= {"q_lora_rank": None}
V3 = PUBLISHED | {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}


@pytest.mark.parametrize(("name", "options"), [("deepseek_v2", V2), ("deepseek_v3", V3)])
def test_all_options_of_published_files_are_known(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    save(random_model(name), tmp_path)
    before, path = read_checkpoint(tmp_path), tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | options))
    after = read_checkpoint(tmp_path)
    assert after.config == before.config and after.notes == before.notes == ()


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    save(random_model("deepseek_v3"), tmp_path)
    change(tmp_path / "config.json", num_nextn_predict_layers=1)
    change_weights(tmp_path, model__layers__3__eh_proj__weight=np.zeros((2, 4), np.float32))
    assert not [name for name in read_checkpoint(tmp_path).weights if name.startswith("layers.3.")]
    change_weights(tmp_path, model__layers__4__eh_proj__weight=np.zeros((2, 4), np.float32))
    assert problems_of(tmp_path) == ["model.layers.4.eh_proj.weight is not expected"]


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob True is not supported"),
        ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func 'sigmoid' is not supported"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc' is not supported"),
        ("deepseek_v2", {"moe_layer_freq": 2}, "moe_layer_freq 2 is not supported"),
        ("deepseek_v2", {"attention_bias": True}, "attention_bias True is not supported"),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method 'greedy' is not supported"),
        ("deepseek_v3", {"n_group": 3}, "8 experts cannot be cut into 3 groups"),
        ("deepseek_v3", {"topk_group": 1, "n_group": 8}, "groups of 1 experts are too small"),
        ("deepseek_v3", {"num_key_value_heads": 2}, "latent attention needs num_kv_heads 2"),
        ("deepseek_v3", {"qk_nope_head_dim": 0}, "heads of 8 are rotated as a whole"),
        ("deepseek_v3", {"quantization_config": FP8}, "quantization_config"),
        (
            "glm4_moe_lite",
            {"mlp_layer_types": ["dense", "sparse", "dense"]},
            "must be dense layers, then sparse ones",
        ),
    ],
)
def test_what_is_computed_in_another_way_is_refused(
    name: str, options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    save(random_model(name), tmp_path)
    change(tmp_path / "config.json", **options)
    assert any(problem in each for each in problems_of(tmp_path))

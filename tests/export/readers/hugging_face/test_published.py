"""Keys of published folders that no release of `transformers` writes today."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.readers.hugging_face.families import read_checkpoint
from tests.export.readers.hugging_face import language_models, translators
from tests.export.readers.hugging_face.changing import change
from tests.export.readers.hugging_face.test_tied_tables import (
    TOLERANCE,
    error_of_language_model,
    error_of_translator,
)

YARN = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0} | {
    "original_max_position_embeddings": 2,
    "truncate": False,
}
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "gemma": {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu"},
    "gpt_oss": {"experts_per_token": 2, "initial_context_length": 2, "router_aux_loss_coef": 0.9}
    | {"rope_parameters": None, "rope_theta": 150000, "rope_scaling": YARN},
    "llama with biases": {"max_position_embeddings": None, "max_sequence_length": 64},
    "mamba": {"d_inner": 64, "rms_norm": True, "ssm_cfg": {}, "fused_add_norm": True},
    "phi3 partial": {"attention_bias": False, "mlp_bias": False, "lm_head_bias": False}
    | {"full_attn_mod": 1},
}
TRANSLATORS: dict[str, dict[str, Any]] = {
    "marian": {"extra_pos_embeddings": 120},
    "umt5": {"scalable_attention": True},
}


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_keys_of_language_models(name: str, tmp_path: Path) -> None:
    language_models.save(language_models.random_model(name), tmp_path)
    change(tmp_path / "config.json", **LANGUAGE_MODELS[name])
    assert error_of_language_model(tmp_path) < TOLERANCE
    assert read_checkpoint(tmp_path).notes == ()


@pytest.mark.parametrize("name", TRANSLATORS)
def test_keys_of_translators(name: str, tmp_path: Path) -> None:
    translators.save(translators.FAMILIES[name], tmp_path)
    change(tmp_path / "config.json", **TRANSLATORS[name])
    assert error_of_translator(tmp_path) < TOLERANCE
    assert read_checkpoint(tmp_path).notes == ()


def test_the_first_name_of_bart_s_forced_token(tmp_path: Path) -> None:
    translators.save(translators.FAMILIES["bart"], tmp_path)
    (tmp_path / "generation_config.json").unlink()
    change(tmp_path / "config.json", force_bos_token_to_be_generated=True)
    assert read_checkpoint(tmp_path).conventions.prompt_prefix == (2, 0)


def test_an_end_that_the_tokenizer_alone_names(tmp_path: Path) -> None:
    """Phi-1 names none: its texts ended at token 0."""
    language_models.save(language_models.random_model("phi"), tmp_path)
    (tmp_path / "generation_config.json").unlink()
    nothing = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    change(tmp_path / "config.json", **nothing)
    change(tmp_path / "tokenizer_config.json", eos_token={"content": "</s>"})
    assert read_checkpoint(tmp_path).conventions.stop == (2,)


def test_the_output_of_umt5_that_says_its_tables_are_not_shared(tmp_path: Path) -> None:
    translators.save(translators.FAMILIES["umt5"], tmp_path)
    scaled = read_checkpoint(tmp_path).weights["decoder.norm.weight"]
    change(tmp_path / "config.json", tie_word_embeddings=False)
    whole = read_checkpoint(tmp_path).weights["decoder.norm.weight"]
    np.testing.assert_allclose(whole * 32**-0.5, scaled, rtol=1e-6)

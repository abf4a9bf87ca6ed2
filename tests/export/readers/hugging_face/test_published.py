"""Keys of published folders that no release of `transformers` writes today."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.readers.hugging_face.families import read
from tests.export.readers.hugging_face import encoders, language_models, translators
from tests.export.readers.hugging_face.changing import change, problems_of
from tests.export.readers.hugging_face.language_models import VOCAB_SIZE
from tests.export.readers.hugging_face.test_tied_tables import (
    TOLERANCE,
    error_of_language_model,
    error_of_translator,
)

LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "cohere": {"model_max_length": 131072},
    "gemma": {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu"},
    "gemma2": {"hidden_act": "gelu_pytorch_tanh"},
    "llama with biases": {"max_position_embeddings": None, "max_sequence_length": 64},
    "mamba": {"d_inner": 64, "d_model": 32, "fused_add_norm": True, "rms_norm": True}
    | {"pad_vocab_size_multiple": 8, "ssm_cfg": {}, "time_step_init_scheme": "random"},
    "opt": {"prefix": "</s>"},
    "phi3 partial": {"attention_bias": False, "mlp_bias": False, "lm_head_bias": False}
    | {"full_attn_mod": 1, "interpolate_factor": 1},
}
TRANSLATORS: dict[str, dict[str, Any]] = {
    "bart": {"extra_pos_embeddings": 2},
    "marian": {"extra_pos_embeddings": 120},
    "pegasus": {"extra_pos_embeddings": 1},
    "umt5": {"scalable_attention": True},
}


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_keys_of_language_models(name: str, tmp_path: Path) -> None:
    language_models.save(language_models.random_model(name), tmp_path)
    change(tmp_path / "config.json", **LANGUAGE_MODELS[name])
    assert error_of_language_model(tmp_path) < TOLERANCE
    assert read(tmp_path).notes == ()


@pytest.mark.parametrize("name", TRANSLATORS)
def test_keys_of_translators(name: str, tmp_path: Path) -> None:
    translators.save(translators.FAMILIES[name], tmp_path)
    change(tmp_path / "config.json", **TRANSLATORS[name])
    assert error_of_translator(tmp_path) < TOLERANCE
    assert read(tmp_path).notes == ()


def test_the_first_name_of_bart_s_forced_token(tmp_path: Path) -> None:
    translators.save(translators.FAMILIES["bart"], tmp_path)
    (tmp_path / "generation_config.json").unlink()
    change(tmp_path / "config.json", force_bos_token_to_be_generated=True)
    assert read(tmp_path).conventions.prompt_prefix == (2, 0)


@pytest.mark.parametrize("end", ["</s>", {"content": "</s>"}])
def test_an_end_that_the_tokenizer_alone_names(end: Any, tmp_path: Path) -> None:
    """Phi-1 and 1.5 say that there is none: their texts would have ended at token 0."""
    language_models.save(language_models.random_model("phi"), tmp_path)
    (tmp_path / "generation_config.json").unlink()
    nothing = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    change(tmp_path / "config.json", vocab_size=VOCAB_SIZE, **nothing)
    change(tmp_path / "tokenizer_config.json", eos_token=end)
    assert read(tmp_path).conventions.stop == (2,)


def test_versions_of_cross_encoders(tmp_path: Path) -> None:
    encoders.save(encoders.random_model("bert", 1), tmp_path)
    options = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}
    change(tmp_path / "config.json", sentence_transformers=options)
    assert read(tmp_path).notes == ()


def test_half_of_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    translators.save(translators.FAMILIES["t5"], tmp_path)
    change(tmp_path / "config.json", architectures=["T5EncoderModel"])
    assert "T5EncoderModel" in "; ".join(problems_of(tmp_path))


def test_the_output_of_umt5_that_says_its_tables_are_not_shared(tmp_path: Path) -> None:
    """Release 5 of `transformers` does not read that option, and scales."""
    translators.save(translators.FAMILIES["umt5"], tmp_path)
    scaled = read(tmp_path).weights["decoder.norm.weight"]
    change(tmp_path / "config.json", tie_word_embeddings=False)
    whole = read(tmp_path).weights["decoder.norm.weight"]
    np.testing.assert_allclose(whole * 32**-0.5, scaled, rtol=1e-6)

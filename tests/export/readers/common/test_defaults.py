"""Tests that what a `config.json` leaves out means what `transformers` takes it to mean."""

from typing import Any

import pytest
from transformers import AutoConfig

from export.readers.common.decoders.families import FAMILIES
from export.readers.common.options import Options
from models.architectures.registry import parse_config
from tests.export.readers.hugging_face.language_models import SIZES, YARN

NUM_LAYERS = 14  # enough for every pattern of layers
GPT2_SIZES = {"n_embd": 64, "n_layer": NUM_LAYERS, "n_head": 4, "n_positions": 8192}
TOLD: dict[str, Any] = {
    **SIZES,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": NUM_LAYERS,
    "max_position_embeddings": 8192,
}
ALPHA = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "mscale": 1.0}
MAMBA_SIZES = {"hidden_size": 256, "num_heads": 8, "num_hidden_layers": 2}
MAMBA_SIZES |= {"max_position_embeddings": 64}  # which they do not know
OTHER_SIZES: dict[str, dict[str, Any]] = {
    "codegen": GPT2_SIZES | {"n_embd": 256},  # heads are as wide as what rotates
    "deepseek_v2": TOLD | {"num_experts_per_tok": 6},
    "falcon": {name: value for name, value in TOLD.items() if name != "intermediate_size"},
    "gpt2": GPT2_SIZES,
    "gpt_neo": {"hidden_size": 64, "num_layers": 24, "num_heads": 4}
    | {"max_position_embeddings": 8192},
    "gptj": GPT2_SIZES | {"n_embd": 256},
    "mamba": MAMBA_SIZES,
    "mamba2": MAMBA_SIZES,
    "opt": TOLD | {"ffn_dim": 80},
}
WINDOWS = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 5}


def configured(family: str, values: dict[str, Any]) -> dict[str, Any]:
    options = Options("config.json", values, [])
    config = parse_config(FAMILIES[family].configure(options))
    assert options.problems == []
    return config.model_dump() | {"head_dim": getattr(config, "head_size", None)}


@pytest.mark.parametrize(
    ("family", "more"),
    [
        *((family, {}) for family in FAMILIES),
        ("qwen2", WINDOWS),
        ("qwen3", WINDOWS),
        ("smollm3", WINDOWS),
        ("smollm3", {"no_rope_layer_interval": 3}),
        ("gemma3_text", {"sliding_window_pattern": 4}),
        ("mistral", {"sliding_window": None}),
        ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
        ("gpt_neox", {"rotary_pct": 1.0}),
        ("hunyuan_v1_dense", {"rope_scaling": ALPHA, "rope_theta": 300.0, "head_dim": 32}),
        ("olmo3", {"rope_scaling": YARN, "rope_theta": 300.0}),
    ],
)
def test_defaults_are_theirs(family: str, more: dict[str, Any]) -> None:
    told = {"vocab_size": 267, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    told |= OTHER_SIZES.get(family, TOLD) | more
    whole = AutoConfig.for_model(family, **told).to_dict()
    assert len(whole) > len(told)
    assert configured(family, told) == configured(family, whole)

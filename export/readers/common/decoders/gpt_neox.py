"""GPT-NeoX (Black et al. 2022), Pythia (Biderman et al. 2023) and Phi.

Phi-1 to Phi-2 (Gunasekar et al. 2023, Li et al. 2023) are GPT-NeoX models whose sublayers share one
norm and whose output has a bias.
"""

from typing import Any

from export.readers.common.decoders.family import (
    IGNORED,
    QUERY_KEY_VALUE,
    LanguageFamily,
    head_size,
    sizes,
)
from export.readers.common.decoders.heads import split_query_key_value
from export.readers.common.options import Options, merge_options
from export.readers.common.rope import read_rotary, rope_section
from export.readers.common.weights import Names, Table, TensorReference
from models.architectures.gpt_neox.config import GPTNeoXConfig

GPT_NEOX_IGNORED = r".*\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"
GPT_NEOX_NAMES = {
    "embedding": "gpt_neox.embed_in",
    "norm": "gpt_neox.final_layer_norm",
    "output": "embed_out",
    "layers.*.attention_norm": "gpt_neox.layers.*.input_layernorm",
    "layers.*.feed_forward_norm": "gpt_neox.layers.*.post_attention_layernorm",
    "layers.*.attention.output": "gpt_neox.layers.*.attention.dense",
    "layers.*.feed_forward.up": "gpt_neox.layers.*.mlp.dense_h_to_4h",
    "layers.*.feed_forward.down": "gpt_neox.layers.*.mlp.dense_4h_to_h",
}


def configure_gpt_neox(config: Options) -> dict[str, Any]:
    rope = rope_section(config)
    values = {"architecture": "gpt-neox", **sizes(config, act="gelu")}
    theta, portion = config.number("rotary_emb_base", 10000.0), config.number("rotary_pct", 0.25)
    size = values["d_model"] // max(values["num_heads"], 1)
    rotary = read_rotary(config, rope, size, theta=theta, portion=portion)
    return merge_options(
        values,
        rotary.options,
        {"parallel_residual": config.flag("use_parallel_residual", True)},
        {"imported": {"attention_bias": config.flag("attention_bias", True)}},
    )


def grouped_sizes(config: Options, act: str, **options: Any) -> dict[str, Any]:
    """Read the sizes of a model of this architecture, whose heads may share keys; see `sizes`."""
    values = sizes(config, act, **options)
    num_kv_heads = config.integer("num_key_value_heads", values["num_heads"])
    return {"architecture": "gpt-neox", "num_kv_heads": num_kv_heads, **values}


def gpt_neox_table(options: Options, config: GPTNeoXConfig) -> Table:
    name = "gpt_neox.layers.*.attention.query_key_value"
    names: Names = {
        **GPT_NEOX_NAMES,
        QUERY_KEY_VALUE: TensorReference(name, change=split_query_key_value(config.num_heads, 1)),
    }
    return Table(names, ignored=(GPT_NEOX_IGNORED,), prefix="gpt_neox.")


def configure_phi(config: Options) -> dict[str, Any]:
    config.only("qk_layernorm", False)
    config.only("tie_word_embeddings", False)
    values = grouped_sizes(config, act="gelu_new")
    rotary = read_rotary(config, rope_section(config), head_size(config), portion=0.5)
    return merge_options(values, rotary.options, {"imported": {"output_bias": True}})


PHI_NAMES = {
    "embedding": "model.embed_tokens",
    "norm": "model.final_layernorm",
    "output": "lm_head",
    "layers.*.attention_norm": "model.layers.*.input_layernorm",
    "layers.*.feed_forward_norm": "model.layers.*.input_layernorm",
    "layers.*.attention.query": "model.layers.*.self_attn.q_proj",
    "layers.*.attention.key": "model.layers.*.self_attn.k_proj",
    "layers.*.attention.value": "model.layers.*.self_attn.v_proj",
    "layers.*.attention.output": "model.layers.*.self_attn.dense",
    "layers.*.feed_forward.up": "model.layers.*.mlp.fc1",
    "layers.*.feed_forward.down": "model.layers.*.mlp.fc2",
}


def phi_table(options: Options, config: GPTNeoXConfig) -> Table:
    return Table(PHI_NAMES, ignored=IGNORED, prefix="model.")


FAMILIES = {
    "gpt_neox": LanguageFamily(configure_gpt_neox, gpt_neox_table),
    "phi": LanguageFamily(configure_phi, phi_table),
}

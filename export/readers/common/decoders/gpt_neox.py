"""GPT-NeoX (Black et al. 2022), Pythia (Biderman et al. 2023) and Phi.

Phi-1 to Phi-2 (Gunasekar et al. 2023, Li et al. 2023) are GPT-NeoX models whose sublayers share one
norm and whose output has a bias.
"""

from functools import partial
from typing import Any

from export.readers.common.decoders.family import (
    NEEDLESS,
    QUERY_KEY_VALUE,
    LanguageFamily,
    head_size,
    num_layers,
    special_ids,
)
from export.readers.common.options import Options, joined
from export.readers.common.rope import read_rotary, rope_section
from export.readers.common.shapes import read_activation
from export.readers.common.weights import Held, Names, Table
from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.safetensors import Array

GPT_NEOX_NEEDLESS = r".*\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"
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
    found = sizes(config, act="gelu")
    theta, portion = config.number("rotary_emb_base", 10000.0), config.number("rotary_pct", 0.25)
    head_size = found["d_model"] // max(found["num_heads"], 1)
    rotary = read_rotary(config, rope, head_size, theta=theta, portion=portion)
    return joined(
        found,
        rotary.options,
        {"parallel_residual": config.flag("use_parallel_residual", True)},
        {"imported": {"attention_bias": config.flag("attention_bias", True)}},
    )


def sizes(config: Options, act: str) -> dict[str, Any]:
    """Read what Phi writes alike; act: where the file does not say."""
    return {
        "architecture": "gpt-neox",
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": config.integer("hidden_size"),
        "num_layers": num_layers(config),
        "num_heads": config.integer("num_attention_heads"),
        "ffn_dim": config.integer("intermediate_size"),
        "norm_epsilon": config.number("layer_norm_eps", 1e-5),
        "activation": read_activation(config, "hidden_act", act),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        **special_ids(config),
    }


def gpt_neox_table(options: Options, config: GPTNeoXConfig) -> Table:
    name = "gpt_neox.layers.*.attention.query_key_value"
    names: Names = {
        **GPT_NEOX_NAMES,
        QUERY_KEY_VALUE: Held(name, change=partial(_parts_apart, config)),
    }
    return Table(names, needless=(GPT_NEOX_NEEDLESS,), prefix="gpt_neox.")


def _parts_apart(config: GPTNeoXConfig, joined: Array) -> Array:
    """Their query, key and value of a head lie together: [heads, 3, head_size, ...]."""
    by_head = joined.reshape(config.num_heads, 3, config.head_size, *joined.shape[1:])
    return by_head.swapaxes(0, 1).reshape(joined.shape)


def configure_phi(config: Options) -> dict[str, Any]:
    config.only("qk_layernorm", False)
    config.only("tie_word_embeddings", False)
    found = sizes(config, act="gelu_new")
    num_kv_heads = config.integer("num_key_value_heads", found["num_heads"])
    rotary = read_rotary(config, rope_section(config), head_size(config), portion=0.5)
    more = {"num_kv_heads": num_kv_heads, "imported": {"output_bias": True}}
    return joined(found, rotary.options, more)


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
    return Table(PHI_NAMES, needless=NEEDLESS, prefix="model.")


FAMILIES = {
    "gpt_neox": LanguageFamily(configure_gpt_neox, gpt_neox_table),
    "phi": LanguageFamily(configure_phi, phi_table),
}

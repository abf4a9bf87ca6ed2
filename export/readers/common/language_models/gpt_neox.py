"""GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023)."""

from functools import partial
from typing import Any

from export.readers.common.activations import read_activation
from export.readers.common.language_models.family import (
    QUERY_KEY_VALUE,
    LanguageFamily,
    num_layers,
    special_ids,
)
from export.readers.common.language_models.rope import read_rotary, rope_section
from export.readers.common.options import Options, joined
from export.readers.common.tables import Held, Names, Table
from models.arrays import Array
from models.configs.language_models.gpt_neox import GPTNeoXConfig

NEEDLESS = r".*\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"
NAMES = {
    "embedding": "gpt_neox.embed_in",
    "norm": "gpt_neox.final_layer_norm",
    "output": "embed_out",
    "layers.*.attention_norm": "gpt_neox.layers.*.input_layernorm",
    "layers.*.feed_forward_norm": "gpt_neox.layers.*.post_attention_layernorm",
    "layers.*.attention.output": "gpt_neox.layers.*.attention.dense",
    "layers.*.feed_forward.up": "gpt_neox.layers.*.mlp.dense_h_to_4h",
    "layers.*.feed_forward.down": "gpt_neox.layers.*.mlp.dense_4h_to_h",
}


def configure(config: Options) -> dict[str, Any]:
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


def table(options: Options, config: GPTNeoXConfig) -> Table:
    name = "gpt_neox.layers.*.attention.query_key_value"
    names: Names = {**NAMES, QUERY_KEY_VALUE: Held(name, change=partial(_parts_apart, config))}
    return Table(names, needless=(NEEDLESS,), prefix="gpt_neox.")


def _parts_apart(config: GPTNeoXConfig, joined: Array) -> Array:
    """Their query, key and value of a head lie together: [heads, 3, head_size, ...]."""
    by_head = joined.reshape(config.num_heads, 3, config.head_size, *joined.shape[1:])
    return by_head.swapaxes(0, 1).reshape(joined.shape)


FAMILY = LanguageFamily(configure, table)

"""Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al. 2023, Li et al. 2023).

A GPT-NeoX whose sublayers share one norm and whose output has a bias.
"""

from typing import Any

from export.readers.common.language_models import gpt_neox, llama
from export.readers.common.language_models.family import LanguageFamily
from export.readers.common.language_models.rope import read_rotary, rope_section
from export.readers.common.options import Options, joined
from export.readers.common.tables import Table
from models.configs.language_models.gpt_neox import GPTNeoXConfig


def configure(config: Options) -> dict[str, Any]:
    config.only("qk_layernorm", False)
    config.only("tie_word_embeddings", False)
    found = gpt_neox.sizes(config, act="gelu_new")
    num_kv_heads = config.integer("num_key_value_heads", found["num_heads"])
    rotary = read_rotary(config, rope_section(config), llama.head_size(config), portion=0.5)
    more = {"num_kv_heads": num_kv_heads, "imported": {"output_bias": True}}
    return joined(found, rotary.options, more)


NAMES = {
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


def table(options: Options, config: GPTNeoXConfig) -> Table:
    return Table(NAMES, needless=llama.NEEDLESS, prefix="model.")


FAMILY = LanguageFamily(configure, table)

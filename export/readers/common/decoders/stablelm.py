"""Families with Llama's names and LayerNorm.

StableLM (Bellagente et al. 2024) rotates a part of each head; some sizes have parallel sublayers,
or norms of queries and keys. StarCoder2 (Lozhkov et al. 2024) has biases, and a window in all
layers. OLMo 1 (Groeneveld et al. 2024) has norms without weights, and limits of queries, keys and
values.
"""

from typing import Any

import numpy as np

from export.readers.common.decoders.family import IGNORED, LanguageFamily, head_size
from export.readers.common.decoders.gpt_neox import grouped_sizes
from export.readers.common.decoders.heads import centre_heads
from export.readers.common.decoders.llama import NAMES, NORMS, rotary
from export.readers.common.options import Options, merge_options
from export.readers.common.rope import read_rotary, rope_section
from export.readers.common.weights import ONES, ZEROS, Merged, Table
from models.architectures.gpt_neox.config import GPTNeoXConfig


def configure_stablelm(config: Options) -> dict[str, Any]:
    imported = {
        "attention_bias": config.flag("use_qkv_bias", False),
        "ffn_bias": False,
        "gated_ffn": True,
        "qk_norm": config.flag("qk_layernorm", False),
    }
    more = {"parallel_residual": config.flag("use_parallel_residual", False), "imported": imported}
    rotary = read_rotary(config, rope_section(config), head_size(config), portion=0.25)
    return merge_options(grouped_sizes(config, act="silu"), rotary.options, more)


def stablelm_table(options: Options, config: GPTNeoXConfig) -> Table:
    names: dict[Any, Any] = {**NAMES, **NORMS, "layers.*.attention.output.bias": ZEROS}
    if config.parallel_residual:
        names["layers.*.feed_forward_norm"] = NORMS["layers.*.attention_norm"]
    if not config.imported.qk_norm:
        return Table(names, ignored=IGNORED, prefix="model.")
    changes = {}
    for part, number in (("query", config.num_heads), ("key", config.kv_heads)):
        norm = f"model.layers.*.self_attn.{part[0]}_layernorm.norms"
        parts = {f"{norm}.{head}.weight": (config.head_size,) for head in range(number)}
        weight = Merged(parts, lambda *norms: np.stack(norms))
        names[f"layers.*.attention.{part}_norm.weight"] = weight
        changes[f"layers.*.attention.{part}"] = centre_heads(config.head_size)
    return Table(names, changes, IGNORED, prefix="model.")


def configure_starcoder2(config: Options) -> dict[str, Any]:
    config.only("mlp_type", "default")
    config.only("norm_type", "layer_norm")
    config.only("scale_attn_weights", True)
    config.use("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    config.use("activation_function", "layer_norm_epsilon")  # other names count
    values = grouped_sizes(config, "gelu_pytorch_tanh", epsilon="norm_epsilon", is_tied=True)
    bias = config.flag("use_bias", True)
    imported = {"attention_bias": bias, "ffn_bias": bias}
    if "sliding_window" in config:
        values["window"] = min(config.integer("sliding_window"), values["context_length"])
    return merge_options(values, rotary(config), {"parallel_residual": False, "imported": imported})


def starcoder2_table(options: Options, config: GPTNeoXConfig) -> Table:
    feed_forward = {
        "layers.*.feed_forward.up": "model.layers.*.mlp.c_fc",
        "layers.*.feed_forward.down": "model.layers.*.mlp.c_proj",
    }
    return Table(NAMES | NORMS | feed_forward, ignored=IGNORED, prefix="model.")


def configure_olmo(config: Options) -> dict[str, Any]:
    has_bias = config.flag("attention_bias", False)
    imported: dict[str, Any] = {"attention_bias": has_bias, "ffn_bias": False, "gated_ffn": True}
    if "clip_qkv" in config:
        imported["qkv_limit"] = config.positive("clip_qkv")
    values = grouped_sizes(config, act="silu", epsilon=None)
    return merge_options(values, rotary(config), {"parallel_residual": False, "imported": imported})


def olmo_table(options: Options, config: GPTNeoXConfig) -> Table:
    norms = ("norm", *NORMS)
    weights = {f"{name}.weight": ONES for name in norms}
    biases = {f"{name}.bias": ZEROS for name in norms}
    return Table({**NAMES, **weights, **biases}, ignored=IGNORED, prefix="model.")


FAMILIES = {
    "olmo": LanguageFamily(configure_olmo, olmo_table),
    "stablelm": LanguageFamily(configure_stablelm, stablelm_table),
    "starcoder2": LanguageFamily(configure_starcoder2, starcoder2_table),
}

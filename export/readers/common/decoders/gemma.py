"""Gemma 1 to 3 (Gemma Team 2024, 2025).

Llama's shape with a scaled embedding, GELU, norms that add 1 to their weights, and from the second
on norms on both sides of a sublayer, caps or norms of queries and keys, and windows in some layers.
"""

import math
from typing import Any

import numpy as np

from export.readers.common.decoders.family import IGNORED, LanguageFamily, head_size, num_layers
from export.readers.common.decoders.llama import NAMES, NORMS, rotary, sizes, windows
from export.readers.common.options import Options, merge_options
from export.readers.common.rope import read_rotary
from export.readers.common.weights import Change, Table, scale_by
from models.architectures.llama.config import LlamaConfig
from models.safetensors import Array

SANDWICH = {
    "layers.*.attention_norm": "model.layers.*.input_layernorm",
    "layers.*.attention_output_norm": "model.layers.*.post_attention_layernorm",
    "layers.*.feed_forward_norm": "model.layers.*.pre_feedforward_layernorm",
    "layers.*.feed_forward_output_norm": "model.layers.*.post_feedforward_layernorm",
}


def configure_gemma(config: Options) -> dict[str, Any]:
    """Its first files say "gelu" and mean the tanh approximation."""
    config.only("hidden_act", "gelu", "gelu_pytorch_tanh")
    config.only("hidden_activation", "gelu", "gelu_pytorch_tanh")
    return merge_options(_sizes(config), rotary(config), {"activation": "gelu_tanh"})


def configure_gemma2(config: Options) -> dict[str, Any]:
    config.default_to(attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    return merge_options(_sandwich(config, pattern=2), rotary(config))


def configure_gemma3(config: Options) -> dict[str, Any]:
    pattern = max(config.integer("sliding_window_pattern", 6), 1)
    config.only("attn_logit_softcapping")  # it has none in transformers, whatever stands there
    sizes = _sandwich(config, pattern)
    full, local = _ropes(config)
    size = head_size(config)
    imported = {
        "window_frequencies": read_rotary(config, local, size).frequencies,
        "qk_norm": True,
    }
    rotary = read_rotary(config, full, size, theta=1_000_000.0)
    return merge_options(sizes, rotary.options, {"imported": imported})


def _ropes(config: Options) -> tuple[Options, Options]:
    """Return the rotary embeddings of layers with full attention, and of layers with a window."""
    if "rope_parameters" in config:
        both = config.section("rope_parameters")
        return both.section("full_attention"), both.section("sliding_attention")
    theta = config.number("rope_local_base_freq", 10000.0)
    local = Options(config.file, {"rope_theta": theta}, config.problems)
    return config.section("rope_scaling"), local


def _sizes(config: Options, act_name: str = "hidden_act") -> dict[str, Any]:
    config.only("use_bidirectional_attention", False)
    config.default_to(head_dim=256)
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "embedding_scale": math.sqrt(config.integer("hidden_size")),
    }
    return merge_options(sizes(config, is_tied=True, act_name=act_name), {"imported": imported})


def _sandwich(config: Options, pattern: int) -> dict[str, Any]:
    """Every `pattern`th layer sees everything."""
    config.use("hidden_act")  # the other name counts
    config.default_to(hidden_activation="gelu_pytorch_tanh", sliding_window=4096)
    layers = range(num_layers(config))
    kinds = ("full_attention", "sliding_attention")
    config.default_to(layer_types=[kinds[(i + 1) % pattern > 0] for i in layers])
    config.positive("query_pre_attn_scalar", 256)
    caps = {"attention_cap": "attn_logit_softcapping", "logit_cap": "final_logit_softcapping"}
    limits = {ours: config.number(theirs) for ours, theirs in caps.items() if theirs in config}
    sizes = _sizes(config, act_name="hidden_activation")
    return merge_options(sizes, windows(config), {"imported": {**limits, "sandwich_norms": True}})


def gemma_table(options: Options, config: LlamaConfig) -> Table:
    norms = SANDWICH if config.imported.sandwich_norms else NORMS
    scaled = ["norm", *norms, *(f"layers.*.attention.{part}_norm" for part in ("query", "key"))]
    changes: dict[str, Change] = dict.fromkeys(scaled, plus_one)
    if config.imported.sandwich_norms:
        scale = scale_by(
            math.sqrt(config.head_size / options.positive("query_pre_attn_scalar", 256))
        )
        if config.imported.qk_norm:
            changes["layers.*.attention.query_norm"] = lambda weight: scale(plus_one(weight))
        else:
            changes["layers.*.attention.query"] = scale
    return Table(NAMES | norms, changes, IGNORED, prefix="model.")


def plus_one(weight: Array) -> Array:
    return weight + np.float32(1)


FAMILIES = {
    "gemma": LanguageFamily(configure_gemma, gemma_table),
    "gemma2": LanguageFamily(configure_gemma2, gemma_table),
    "gemma3_text": LanguageFamily(configure_gemma3, gemma_table),
}

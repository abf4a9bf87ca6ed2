"""Mamba-2 (Dao and Gu 2024)."""

import math
from typing import Any

from export.readers.common.decoders.family import LanguageFamily, num_layers, special_ids
from export.readers.common.options import Options
from export.readers.common.weights import Names, Table
from models.architectures.mamba2.config import Mamba2Config

CONTEXT_LENGTH = 2**15
# JSON has no infinity: there are Python's way to write one, and that of transformers from 5 on.
NO_LIMITS = ([0.0, math.inf], [0.0, {"__float__": "Infinity"}])
PARTS = ("z", "x", "B", "C", "dt")
NAMES: Names = {
    "embedding": "backbone.embeddings",
    "norm": "backbone.norm_f",
    "output": "lm_head",
    "layers.*.norm": "backbone.layers.*.norm",
    tuple(f"layers.*.mixer.{part}" for part in PARTS): "backbone.layers.*.mixer.in_proj",
    "layers.*.mixer.conv": "backbone.layers.*.mixer.conv1d",
    "layers.*.mixer.norm": "backbone.layers.*.mixer.norm",
    "layers.*.mixer.output": "backbone.layers.*.mixer.out_proj",
    **{
        f"layers.*.mixer.{name}": f"backbone.layers.*.mixer.{name}"
        for name in ("A_log", "D", "dt_bias")
    },
}


def configure_mamba2(config: Options) -> dict[str, Any]:
    config.only("hidden_act", "silu", "swish")
    config.only("time_step_limit", *NO_LIMITS)
    d_model, expand = config.integer("hidden_size"), config.integer("expand", 2)
    num_heads, head_dim = config.integer("num_heads", 128), config.integer("head_dim", 64)
    if num_heads * head_dim != expand * d_model:
        config.refuse("num_heads", f"of {head_dim} are not {expand} times {d_model}")
    return {
        "architecture": "mamba2",
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": d_model,
        "num_layers": num_layers(config),
        "num_heads": num_heads,
        "head_dim": head_dim,
        "state_dim": config.integer("state_size", 128),
        "num_groups": config.integer("n_groups", 8),
        "conv_kernel_size": config.integer("conv_kernel", 4),
        "norm_epsilon": config.number("layer_norm_epsilon", 1e-5),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "imported": {
            "biases": config.flag("use_bias", False),
            "conv_bias": config.flag("use_conv_bias", True),
        },
        **special_ids(config),
    }


def mamba2_table(options: Options, config: Mamba2Config) -> Table:
    return Table(NAMES, prefix="backbone.")


FAMILIES = {"mamba2": LanguageFamily(configure_mamba2, mamba2_table, CONTEXT_LENGTH)}

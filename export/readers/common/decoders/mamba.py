"""Mamba (Gu and Dao 2023) and Mamba-2 (Dao and Gu 2024)."""

import math
from typing import Any

from export.readers.common.decoders.family import LanguageFamily, num_layers, special_ids
from export.readers.common.options import Options
from export.readers.common.weights import Names, Table
from models.architectures.mamba.config import MambaConfig
from models.architectures.mamba2.config import Mamba2Config

CONTEXT_LENGTH = 2**15
# JSON has no infinity: there are Python's way to write one, and that of transformers from 5 on.
NO_LIMITS = ([0.0, math.inf], [0.0, {"__float__": "Infinity"}])


def _mixer(*parts: str) -> tuple[str, ...]:
    return tuple(f"layers.*.mixer.{part}" for part in parts)


NAMES: Names = {
    "embedding": "backbone.embeddings",
    "norm": "backbone.norm_f",
    "output": "lm_head",
    "layers.*.norm": "backbone.layers.*.norm",
    "layers.*.mixer.A_log": "backbone.layers.*.mixer.A_log",
    "layers.*.mixer.D": "backbone.layers.*.mixer.D",
    "layers.*.mixer.conv": "backbone.layers.*.mixer.conv1d",
    "layers.*.mixer.output": "backbone.layers.*.mixer.out_proj",
}
MAMBA_NAMES: Names = {
    **NAMES,
    _mixer("x", "z"): "backbone.layers.*.mixer.in_proj",
    _mixer("low", "B", "C"): "backbone.layers.*.mixer.x_proj",
    "layers.*.mixer.dt": "backbone.layers.*.mixer.dt_proj",
}
MAMBA2_NAMES: Names = {
    **NAMES,
    _mixer("z", "x", "B", "C", "dt"): "backbone.layers.*.mixer.in_proj",
    "layers.*.mixer.norm": "backbone.layers.*.mixer.norm",
    "layers.*.mixer.dt_bias": "backbone.layers.*.mixer.dt_bias",
}


def configure_mamba(config: Options) -> dict[str, Any]:
    config.only("hidden_act", "silu", "swish")
    config.use("use_mambapy", "use_associative_scan", "time_step_scale", "time_step_init_scheme")
    config.use("intermediate_size", "d_inner", "d_model")  # which follow from others here
    d_model = config.integer("hidden_size")
    is_auto = config.get("time_step_rank", "auto") == "auto"
    return {
        **_sizes(config, d_model, is_tied=True),
        "architecture": "mamba",
        "inner_dim": int(config.number("expand", 2) * d_model),
        "state_dim": config.integer("state_size", 16),
        "step_rank": -(-d_model // 16) if is_auto else config.integer("time_step_rank"),
    }


def _sizes(config: Options, d_model: int, *, is_tied: bool) -> dict[str, Any]:
    """Read what both write alike; is_tied: where the file does not say."""
    return {
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": d_model,
        "num_layers": num_layers(config),
        "conv_kernel_size": config.integer("conv_kernel", 4),
        "norm_epsilon": config.number("layer_norm_epsilon", 1e-5),
        "tied_embeddings": config.flag("tie_word_embeddings", is_tied),
        "imported": {
            "biases": config.flag("use_bias", False),
            "conv_bias": config.flag("use_conv_bias", True),
        },
        **special_ids(config),
    }


def mamba_table(options: Options, config: MambaConfig) -> Table:
    return Table(MAMBA_NAMES, prefix="backbone.")


def configure_mamba2(config: Options) -> dict[str, Any]:
    config.only("hidden_act", "silu", "swish")
    config.only("time_step_limit", *NO_LIMITS)
    d_model, expand = config.integer("hidden_size"), config.integer("expand", 2)
    num_heads, head_dim = config.integer("num_heads", 128), config.integer("head_dim", 64)
    if num_heads * head_dim != expand * d_model:
        config.refuse("num_heads", f"of {head_dim} are not {expand} times {d_model}")
    return {
        **_sizes(config, d_model, is_tied=False),
        "architecture": "mamba2",
        "num_heads": num_heads,
        "head_dim": head_dim,
        "state_dim": config.integer("state_size", 128),
        "num_groups": config.integer("n_groups", 8),
    }


def mamba2_table(options: Options, config: Mamba2Config) -> Table:
    return Table(MAMBA2_NAMES, prefix="backbone.")


FAMILIES = {
    "mamba": LanguageFamily(configure_mamba, mamba_table, CONTEXT_LENGTH),
    "mamba2": LanguageFamily(configure_mamba2, mamba2_table, CONTEXT_LENGTH),
}

"""Families that are Llama but for a few options: Arcee, ERNIE 4.5, Helium and Seed-OSS."""

from typing import Any

from export.readers.common.decoders.family import IGNORED, LanguageFamily
from export.readers.common.decoders.heads import deinterleave_queries_and_keys
from export.readers.common.decoders.llama import (
    NAMES,
    NORMS,
    configure_llama,
    rotary,
    sizes,
    table,
)
from export.readers.common.options import Options, merge_options
from export.readers.common.weights import Table
from models.architectures.llama.config import LlamaConfig


def configure_arcee(config: Options) -> dict[str, Any]:
    """Its feed-forward network has no gate."""
    config.default_to(hidden_act="relu2", rms_norm_eps=1e-5)
    return merge_options(configure_llama(config), {"imported": {"gated_ffn": False}})


def configure_ernie4_5(config: Options) -> dict[str, Any]:
    config.default_to(rms_norm_eps=1e-5, head_dim=128, num_key_value_heads=2)
    has_bias = config.flag("use_bias", False)
    imported = {"attention_bias": "all" if has_bias else "none", "ffn_bias": has_bias}
    values = sizes(config, is_tied=True)
    return merge_options(values, rotary(config, theta=500_000.0), {"imported": imported})


def configure_helium(config: Options) -> dict[str, Any]:
    config.default_to(rms_norm_eps=1e-8, head_dim=128, num_key_value_heads=20)
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "qkv" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
    }
    return merge_options(sizes(config), rotary(config, theta=100_000.0), {"imported": imported})


def configure_seed_oss(config: Options) -> dict[str, Any]:
    config.default_to(head_dim=128, num_key_value_heads=8)
    has_bias = config.flag("attention_bias", True)
    has_output_bias = config.flag("attention_out_bias", False)
    if has_output_bias and not has_bias:
        config.refuse("attention_out_bias", "needs attention_bias")
    imported = {
        "attention_bias": "all" if has_output_bias else "qkv" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
    }
    return merge_options(sizes(config), rotary(config), {"imported": imported})


def interleaved_table(options: Options, config: LlamaConfig) -> Table:
    return Table(NAMES | NORMS, deinterleave_queries_and_keys(config), IGNORED, prefix="model.")


FAMILIES = {
    "arcee": LanguageFamily(configure_arcee, table),
    "ernie4_5": LanguageFamily(configure_ernie4_5, interleaved_table),
    "helium": LanguageFamily(configure_helium, interleaved_table),
    "seed_oss": LanguageFamily(configure_seed_oss, table),
}

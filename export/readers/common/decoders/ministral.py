"""Ministral 3 (Mistral AI 2025): Mistral, whose queries grow with their position as in Llama 4."""

from typing import Any

from export.readers.common.decoders.family import LanguageFamily
from export.readers.common.decoders.llama import rotary, sizes, table, windows
from export.readers.common.options import Options, merge_options
from export.readers.common.rope import rope_section

ROPE = {  # where the file has none
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16_384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def configure(config: Options) -> dict[str, Any]:
    config.default_to(rms_norm_eps=1e-5, head_dim=128, num_key_value_heads=8, rope_parameters=ROPE)
    rope = rope_section(config)
    rope.use("max_position_embeddings")
    growth = {
        "rate": rope.positive("llama_4_scaling_beta"),
        "length": rope.integer("original_max_position_embeddings"),
    }
    values = merge_options(sizes(config), rotary(config, rope=rope), windows(config))
    return merge_options(values, {"imported": {"query_growth": growth}})


FAMILIES = {"ministral3": LanguageFamily(configure, table)}

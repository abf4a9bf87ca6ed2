"""GLM-4 (GLM Team 2024): `glm`, and `glm4` with norms on both sides of a sublayer.

Llama's shape, of which half a head rotates, neighbours against each other.
"""

from typing import Any

from export.readers.common.decoders.family import IGNORED, LanguageFamily, head_size
from export.readers.common.decoders.heads import deinterleave_queries_and_keys
from export.readers.common.decoders.llama import NAMES, NORMS, sizes
from export.readers.common.options import Options, merge_options
from export.readers.common.rope import read_rotary, rope_section
from export.readers.common.weights import Names, Table
from models.architectures.llama.config import LlamaConfig

GATE_AND_UP = ("layers.*.feed_forward.gate", "layers.*.feed_forward.up")
GLM_NAMES: Names = {**NAMES, **NORMS, GATE_AND_UP: "model.layers.*.mlp.gate_up_proj"}
GLM4_NAMES: Names = {
    **GLM_NAMES,
    "layers.*.attention_output_norm": "model.layers.*.post_self_attn_layernorm",
    "layers.*.feed_forward_output_norm": "model.layers.*.post_mlp_layernorm",
}


def configure_glm(config: Options) -> dict[str, Any]:
    config.default_to(rms_norm_eps=1.5625e-7, head_dim=128, num_key_value_heads=2)
    has_bias = config.flag("attention_bias", True)
    rotary = read_rotary(config, rope_section(config), head_size(config), portion=0.5)
    imported = {"attention_bias": "qkv" if has_bias else "none"}
    return merge_options(sizes(config), rotary.options, {"imported": imported})


def configure_glm4(config: Options) -> dict[str, Any]:
    return merge_options(configure_glm(config), {"imported": {"sandwich_norms": True}})


def table(options: Options, config: LlamaConfig) -> Table:
    names = GLM4_NAMES if config.imported.sandwich_norms else GLM_NAMES
    return Table(names, deinterleave_queries_and_keys(config), IGNORED, prefix="model.")


FAMILIES = {
    "glm": LanguageFamily(configure_glm, table),
    "glm4": LanguageFamily(configure_glm4, table),
}

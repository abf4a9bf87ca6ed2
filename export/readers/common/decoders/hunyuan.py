"""Hunyuan's dense models (Tencent 2025), among them the translators HY-MT.

Llama's shape, but queries and keys of each head are normalised after they are rotated.
"""

from typing import Any

from export.readers.common.decoders.family import IGNORED, LanguageFamily, head_size
from export.readers.common.decoders.llama import NAMES, NORMS, rotary, sizes
from export.readers.common.options import Options, merge_options
from export.readers.common.rope import rope_section
from export.readers.common.weights import Table
from models.architectures.llama.config import LlamaConfig

NORMS_OF_HEADS = {
    f"layers.*.attention.{part}_norm": f"model.layers.*.self_attn.{part}_layernorm"
    for part in ("query", "key")
}


def configure(config: Options) -> dict[str, Any]:
    config.default_to(rms_norm_eps=1e-5)
    config.only("use_qk_norm", True)
    config.only("use_cla", False)  # attention to another layer's keys
    config.only("mlp_bias", False)
    config.use("eod_token_id")
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "qk_norm": True,
        "qk_norm_after_rotation": True,
    }
    return merge_options(
        sizes(config), rotary(config, rope=_stretch_rope(config)), {"imported": imported}
    )


def _stretch_rope(config: Options) -> Options:
    """Return the rotary embedding with `alpha` in its theta: "dynamic" there, and always the same
    (transformers' HunYuanDenseV1RotaryEmbedding).
    """
    rope = rope_section(config)
    if rope.word("rope_type", rope.word("type", "default")) == "dynamic" and "alpha" in rope:
        size = head_size(config)
        theta = rope.positive("rope_theta", config.positive("rope_theta", 10000.0))
        rope.values["rope_theta"] = theta * rope.positive("alpha") ** (size / max(size - 2, 1))
        rope.use("beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    return rope


def table(options: Options, config: LlamaConfig) -> Table:
    return Table(NAMES | NORMS | NORMS_OF_HEADS, ignored=IGNORED, prefix="model.")


FAMILIES = {"hunyuan_v1_dense": LanguageFamily(configure, table)}

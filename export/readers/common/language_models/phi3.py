"""Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024): Llamas with projections written side by side."""

from typing import Any

from export.readers.common.language_models import llama
from export.readers.common.language_models.family import QUERY_KEY_VALUE, LanguageFamily
from export.readers.common.language_models.rope import rope_section
from export.readers.common.options import Options, joined
from export.readers.common.tables import Names, Table
from models.configs.language_models.llama import LlamaConfig


def configure(config: Options) -> dict[str, Any]:
    """Its early files call LongRoPE "su" or "yarn"."""
    config.default_to(rms_norm_eps=1e-5)
    rope = rope_section(config)
    for name in ("type", "rope_type"):
        if rope.values.get(name) == "yarn":
            rope.values[name] = "longrope"
    return joined(llama.sizes(config), llama.rotary(config, rope=rope), llama.windows(config))


NAMES: Names = {
    **llama.NAMES,
    **llama.NORMS,
    QUERY_KEY_VALUE: "model.layers.*.self_attn.qkv_proj",
    ("layers.*.feed_forward.gate", "layers.*.feed_forward.up"): "model.layers.*.mlp.gate_up_proj",
}


def table(options: Options, config: LlamaConfig) -> Table:
    return Table(NAMES, needless=llama.NEEDLESS, prefix="model.")


FAMILY = LanguageFamily(configure, table)

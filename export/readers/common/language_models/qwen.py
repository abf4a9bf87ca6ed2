"""Qwen: Llamas with biases of queries, keys and values (Qwen2, Qwen2.5: Qwen Team 2024), or with
norms of queries and keys (Qwen3: Qwen Team 2025).
"""

from typing import Any

from export.readers.common.language_models import llama
from export.readers.common.language_models.family import LanguageFamily
from export.readers.common.options import Options, joined


def configure_qwen2(config: Options) -> dict[str, Any]:
    return joined(_sizes(config), {"imported": {"attention_bias": "qkv"}})


def configure_qwen3(config: Options) -> dict[str, Any]:
    config.default_to(head_dim=128)
    has_bias = config.flag("attention_bias", False)
    imported = {"attention_bias": "all" if has_bias else "none", "qk_norm": True}
    return joined(_sizes(config), {"imported": imported})


def _sizes(config: Options) -> dict[str, Any]:
    config.default_to(sliding_window=4096)
    found = joined(llama.sizes(config), llama.rotary(config))
    if not config.flag("use_sliding_window", False):
        config.use("max_window_layers")
        llama.without_windows(config)
        return found
    return joined(found, llama.windows(config, config.integer("max_window_layers", 28)))


QWEN2 = LanguageFamily(configure_qwen2, llama.table)
QWEN3 = LanguageFamily(configure_qwen3, llama.table)

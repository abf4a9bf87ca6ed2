"""SmolLM3 (Bakouch et al. 2025): a Llama of which every fourth layer does not rotate."""

from typing import Any

from export.readers.common.language_models import llama
from export.readers.common.language_models.family import LanguageFamily, num_layers
from export.readers.common.options import Options, joined


def configure(config: Options) -> dict[str, Any]:
    rotating = _rotating(config)
    found = joined(llama.sizes(config, is_tied=True), llama.rotary(config, theta=2_000_000.0))
    if config.flag("use_sliding_window", False):
        kinds = ("sliding_attention", "full_attention")
        config.default_to(layer_types=[kinds[rotates > 0] for rotates in rotating])
        found = joined(found, llama.windows(config))
    else:
        llama.without_windows(config)
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
        "layers_without_rotation": tuple(
            layer for layer, rotates in enumerate(rotating) if not rotates
        ),
    }
    return joined(found, {"imported": imported})


def _rotating(config: Options) -> tuple[int, ...]:
    """`no_rope_layers` holds a 1 for each layer that does rotate."""
    interval = max(config.integer("no_rope_layer_interval", 4), 1)
    layers = range(num_layers(config))
    usual = tuple(int((layer + 1) % interval != 0) for layer in layers)
    told = config.integers("no_rope_layers") or usual
    if len(told) != len(usual):
        config.refuse("no_rope_layers", f"must hold {len(usual)} numbers")
    return told


FAMILY = LanguageFamily(configure, llama.table)

"""OLMo 2 and 3 (Team OLMo 2025) and EXAONE 4 (LG AI Research 2025).

Llama's shape, but sublayers are normalised after themselves only, and queries and keys too: in OLMo
over all heads together. In three layers of four OLMo 3 has windows, whose rotation is never scaled,
and EXAONE 4 windows and rotation at all.
"""

from typing import Any

from export.readers.common.decoders.family import IGNORED, LanguageFamily, head_size, num_layers
from export.readers.common.decoders.gemma import SANDWICH
from export.readers.common.decoders.llama import NAMES, rotary, sizes, windows
from export.readers.common.options import Options, merge_options
from export.readers.common.rope import read_rotary
from export.readers.common.weights import Table
from models.architectures.llama.config import LlamaConfig

THETA = 500_000.0  # of OLMo 3, where the file does not say


def configure_olmo2(config: Options) -> dict[str, Any]:
    return merge_options(_sizes(config), rotary(config))


def configure_olmo3(config: Options) -> dict[str, Any]:
    full, local = _ropes(config)
    size = head_size(config)
    imported = {"window_frequencies": read_rotary(config, local, size).frequencies}
    rotary = read_rotary(config, full, size, theta=THETA).options
    return merge_options(_sizes(config), _windows(config, 4), rotary, {"imported": imported})


def configure_exaone4(config: Options) -> dict[str, Any]:
    interval = config.get("sliding_window_pattern", 4)
    if not isinstance(interval, int):  # letters, for which transformers needs the other key too
        if "layer_types" not in config:
            config.refuse("sliding_window_pattern", "needs layer_types")
        interval = 1
    window_options = _windows(config, interval)
    unrotated = window_options.get("imported", {}).get("layers_without_window", ())
    imported = {"qk_norm_spans_heads": False, "layers_without_rotation": unrotated}
    return merge_options(_sizes(config), rotary(config), window_options, {"imported": imported})


def _windows(config: Options, interval: int) -> dict[str, Any]:
    """Every layer of this interval sees everything."""
    config.default_to(sliding_window=4096)
    kinds = ("full_attention", "sliding_attention")
    if "sliding_window" in config:
        layers = range(num_layers(config))
        config.default_to(layer_types=[kinds[(n + 1) % max(interval, 1) > 0] for n in layers])
    elif kinds[1] in config.words("layer_types"):
        config.refuse("layer_types", "needs sliding_window")
    return windows(config)


def _sizes(config: Options) -> dict[str, Any]:
    config.default_to(rms_norm_eps=1e-5)
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "qk_norm": True,
        "qk_norm_spans_heads": True,
        "sandwich_norms": True,
        "input_norms": False,
    }
    return merge_options(sizes(config), {"imported": imported})


def _ropes(config: Options) -> tuple[Options, Options]:
    """Return the rotary embeddings of layers with full attention, and of layers with a window."""
    both = config.section("rope_parameters")
    full, local = both.section("full_attention"), both.section("sliding_attention")
    if "rope_scaling" in config:
        if full.values:
            config.refuse("rope_scaling", "and rope_parameters are both there")
        full = config.section("rope_scaling")
    local.default_to(rope_theta=THETA)  # in transformers `rope_theta` is of the other layers alone
    local.only("rope_type", "default")
    return full, local


def table(options: Options, config: LlamaConfig) -> Table:
    norms = {ours: theirs for ours, theirs in SANDWICH.items() if ours.endswith("output_norm")}
    return Table(NAMES | norms, ignored=IGNORED, prefix="model.")


FAMILIES = {
    "exaone4": LanguageFamily(configure_exaone4, table),
    "olmo2": LanguageFamily(configure_olmo2, table),
    "olmo3": LanguageFamily(configure_olmo3, table),
}

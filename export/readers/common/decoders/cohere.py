"""Command R (Cohere) and its second form, with windows.

LayerNorm without biases, parallel sublayers that share a norm, gated feed-forward networks, scaled
logits; neighbours are rotated. Command R+ has norms of queries and keys. In Cohere2, layers without
a window do not rotate.
"""

from typing import Any

from export.readers.common.decoders.family import IGNORED, LanguageFamily, num_layers
from export.readers.common.decoders.gpt_neox import grouped_sizes
from export.readers.common.decoders.heads import centre_heads, deinterleave_queries_and_keys
from export.readers.common.decoders.llama import NAMES, rotary, windows
from export.readers.common.options import Options, merge_options
from export.readers.common.weights import ZEROS, Change, Names, Table, scale_by
from models.architectures.gpt_neox.config import GPTNeoXConfig

NORMS: Names = {
    "layers.*.attention_norm": "model.layers.*.input_layernorm",
    "layers.*.feed_forward_norm": "model.layers.*.input_layernorm",
    "norm.bias": ZEROS,
    "layers.*.attention_norm.bias": ZEROS,
    "layers.*.feed_forward_norm.bias": ZEROS,
}


def configure_cohere(config: Options) -> dict[str, Any]:
    config.use("model_max_length")  # which the table of rotations does not follow
    norms = {"imported": {"qk_norm": config.flag("use_qk_norm", False)}}
    return merge_options(_sizes(config), rotary(config, theta=500000.0), norms)


def _sizes(config: Options) -> dict[str, Any]:
    imported = {
        "attention_bias": config.flag("attention_bias", False),
        "ffn_bias": False,
        "gated_ffn": True,
    }
    return merge_options(grouped_sizes(config, act="silu", is_tied=True), {"imported": imported})


def cohere_table(options: Options, config: GPTNeoXConfig) -> Table:
    """Fold the scale of logits into the last norm."""
    changes: dict[str, Change] = {"norm": scale_by(options.positive("logit_scale", 0.0625))}
    for name, ordered in deinterleave_queries_and_keys(config).items():
        changes[name] = ordered
        if config.imported.qk_norm:
            changes[f"{name}_norm"] = _by_row(ordered)
            changes[name] = _both(centre_heads(config.head_size), ordered)
    return Table({**NAMES, **NORMS}, changes, IGNORED, prefix="model.")


def _both(first: Change, second: Change) -> Change:
    return lambda weight: second(first(weight))


def _by_row(change: Change) -> Change:
    """Change a norm of heads, each of which is a row."""
    return lambda weight: change(weight.ravel()).reshape(weight.shape)


def configure_cohere2(config: Options) -> dict[str, Any]:
    config.only("order_of_interleaved_layers", "local_attn_first")
    config.only("position_embedding_type", "rope_gptj")
    config.only("rotary_pct", 1.0)
    config.only("use_gated_activation", True)
    config.only("use_parallel_block", True)
    config.only("use_qk_norm", False)
    config.use("layer_switch", "use_embedding_sharing", "use_parallel_embedding")
    values = merge_options(_sizes(config), rotary(config), _windows(config))
    still = values["imported"].get("layers_without_window", ())
    return merge_options(values, {"imported": {"layers_without_rotation": still}})


def _windows(config: Options) -> dict[str, Any]:
    """Read the windows, which every layer but each fourth has where the file says nothing else."""
    pattern = max(config.integer("sliding_window_pattern", 4), 1)
    kinds = ("full_attention", "sliding_attention")
    layers = range(num_layers(config))
    config.default_to(
        sliding_window=4096, layer_types=[kinds[(i + 1) % pattern > 0] for i in layers]
    )
    if "sliding_window" not in config:
        config.refuse("sliding_window", "must be a number")
    return windows(config)


FAMILIES = {
    "cohere": LanguageFamily(configure_cohere, cohere_table),
    "cohere2": LanguageFamily(configure_cohere2, cohere_table),
}

"""Llama and the families of its shape.

Llama 1 to 3.2, SmolLM and SmolLM2; Mistral (Jiang et al. 2023), where a layer may attend to a
window of the last positions, and Ministral, where some do; Qwen2 and Qwen2.5 with biases of
queries, keys and values (Qwen Team 2024), Qwen3 with norms of queries and keys (Qwen Team 2025);
SmolLM3 (Bakouch et al. 2025), of which every fourth layer does not rotate; Phi-3, Phi-3.5 and Phi-4
(Abdin et al. 2024), whose projections are written side by side.
"""

from typing import Any

from export.readers.common.decoders import family
from export.readers.common.decoders.family import (
    IGNORED,
    QUERY_KEY_VALUE,
    LanguageFamily,
    head_size,
    num_layers,
)
from export.readers.common.options import Options, merge_options
from export.readers.common.rope import read_rotary, rope_section
from export.readers.common.weights import Names, Table
from models.architectures.llama.config import LlamaConfig


def configure_llama(config: Options) -> dict[str, Any]:
    """Read a Llama, which has biases everywhere or nowhere."""
    config.only("rope_interleaved", False)  # of nanotron, as SmolLM's files say
    config.use("is_llama_config")
    config.default_to(max_position_embeddings=config.integer("max_sequence_length", 2048))
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
    }
    return merge_options(sizes(config), rotary(config), {"imported": imported})


def sizes(config: Options, **options: Any) -> dict[str, Any]:
    """Read what all models of this shape write alike. Takes options of `family.sizes`."""
    config.default_to(rms_norm_eps=1e-6)
    values = family.sizes(config, "silu", epsilon="rms_norm_eps", **options)
    num_kv_heads = config.integer("num_key_value_heads", values["num_heads"])
    return {"architecture": "llama", "num_kv_heads": num_kv_heads, **values}


def rotary(
    config: Options, *, theta: float = 10000.0, rope: Options | None = None
) -> dict[str, Any]:
    """Return the rotary table of all layers."""
    rope = rope or rope_section(config)
    return read_rotary(config, rope, head_size(config), theta=theta).options


def windows(config: Options, num_windowed_from: int = 0) -> dict[str, Any]:
    """`layer_types` say which layers have the window; without them those from a number on have."""
    if "sliding_window" not in config:
        return {}
    layers = range(num_layers(config))
    kinds = config.words("layer_types") or [
        "sliding_attention" if layer >= num_windowed_from else "full_attention" for layer in layers
    ]
    if len(kinds) != len(layers):
        config.refuse("layer_types", f"must hold {len(layers)} names")
    if unknown := sorted({*kinds} - {"sliding_attention", "full_attention"}):
        config.refuse("layer_types", f"are not supported: {', '.join(unknown)}")
    window = min(config.integer("sliding_window"), config.integer("max_position_embeddings"))
    full = tuple(layer for layer, kind in enumerate(kinds) if kind == "full_attention")
    return {"window": window, "imported": {"layers_without_window": full}}


def without_windows(config: Options) -> None:
    """Refuse layers with a window in a model without one."""
    config.use("sliding_window")
    if {*config.words("layer_types")} - {"full_attention"}:
        config.refuse("layer_types", "needs use_sliding_window")


def table(options: Options, config: LlamaConfig) -> Table:
    """Return the tensor names of Llama, which Mistral, Qwen and SmolLM use too."""
    return Table(NAMES | NORMS, ignored=IGNORED, prefix="model.")


NORMS = {
    "layers.*.attention_norm": "model.layers.*.input_layernorm",
    "layers.*.feed_forward_norm": "model.layers.*.post_attention_layernorm",
}
NAMES = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "output": "lm_head",
    "layers.*.attention.query": "model.layers.*.self_attn.q_proj",
    "layers.*.attention.key": "model.layers.*.self_attn.k_proj",
    "layers.*.attention.value": "model.layers.*.self_attn.v_proj",
    "layers.*.attention.output": "model.layers.*.self_attn.o_proj",
    "layers.*.attention.query_norm": "model.layers.*.self_attn.q_norm",
    "layers.*.attention.key_norm": "model.layers.*.self_attn.k_norm",
    "layers.*.feed_forward.gate": "model.layers.*.mlp.gate_proj",
    "layers.*.feed_forward.up": "model.layers.*.mlp.up_proj",
    "layers.*.feed_forward.down": "model.layers.*.mlp.down_proj",
}


def configure_mistral(config: Options) -> dict[str, Any]:
    config.default_to(sliding_window=4096)
    return merge_options(sizes(config), rotary(config), windows(config))


def configure_qwen2(config: Options) -> dict[str, Any]:
    return merge_options(_qwen_sizes(config), {"imported": {"attention_bias": "qkv"}})


def configure_qwen3(config: Options) -> dict[str, Any]:
    config.default_to(head_dim=128)
    has_bias = config.flag("attention_bias", False)
    imported = {"attention_bias": "all" if has_bias else "none", "qk_norm": True}
    return merge_options(_qwen_sizes(config), {"imported": imported})


def _qwen_sizes(config: Options) -> dict[str, Any]:
    config.default_to(sliding_window=4096)
    values = merge_options(sizes(config), rotary(config))
    if not config.flag("use_sliding_window", False):
        config.use("max_window_layers")
        without_windows(config)
        return values
    return merge_options(values, windows(config, config.integer("max_window_layers", 28)))


def configure_smollm3(config: Options) -> dict[str, Any]:
    rotating = _rotating(config)
    values = merge_options(sizes(config, is_tied=True), rotary(config, theta=2_000_000.0))
    if config.flag("use_sliding_window", False):
        kinds = ("sliding_attention", "full_attention")
        config.default_to(layer_types=[kinds[rotates > 0] for rotates in rotating])
        values = merge_options(values, windows(config))
    else:
        without_windows(config)
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
        "layers_without_rotation": tuple(
            layer for layer, rotates in enumerate(rotating) if not rotates
        ),
    }
    return merge_options(values, {"imported": imported})


def _rotating(config: Options) -> tuple[int, ...]:
    """`no_rope_layers` holds a 1 for each layer that does rotate."""
    interval = max(config.integer("no_rope_layer_interval", 4), 1)
    layers = range(num_layers(config))
    usual = tuple(int((layer + 1) % interval != 0) for layer in layers)
    flags = config.integers("no_rope_layers") or usual
    if len(flags) != len(usual):
        config.refuse("no_rope_layers", f"must hold {len(usual)} numbers")
    return flags


def configure_phi3(config: Options) -> dict[str, Any]:
    """Return our options of Phi-3, whose early files call LongRoPE "su" or "yarn"."""
    config.default_to(rms_norm_eps=1e-5)
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        config.only(name, False)
    config.only("full_attn_mod", 1)
    config.use("interpolate_factor")
    rope = rope_section(config)
    for name in ("type", "rope_type"):
        if rope.values.get(name) == "yarn":
            rope.values[name] = "longrope"
    return merge_options(sizes(config), rotary(config, rope=rope), windows(config))


PHI3_NAMES: Names = {
    **NAMES,
    **NORMS,
    QUERY_KEY_VALUE: "model.layers.*.self_attn.qkv_proj",
    ("layers.*.feed_forward.gate", "layers.*.feed_forward.up"): "model.layers.*.mlp.gate_up_proj",
}


def phi3_table(options: Options, config: LlamaConfig) -> Table:
    return Table(PHI3_NAMES, ignored=IGNORED, prefix="model.")


FAMILIES = {
    "llama": LanguageFamily(configure_llama, table),
    "ministral": LanguageFamily(configure_mistral, table),
    "mistral": LanguageFamily(configure_mistral, table),
    "phi3": LanguageFamily(configure_phi3, phi3_table),
    "qwen2": LanguageFamily(configure_qwen2, table),
    "qwen3": LanguageFamily(configure_qwen3, table),
    "smollm3": LanguageFamily(configure_smollm3, table),
}

"""Llama (1 to 3.2, SmolLM and SmolLM2 too), and what models of its shape are read by."""

from typing import Any

from export.readers.common.activations import read_activation
from export.readers.common.language_models.family import LanguageFamily, num_layers, special_ids
from export.readers.common.language_models.rope import read_rotary, rope_section
from export.readers.common.options import Options, joined
from export.readers.common.tables import Table
from models.configs.language_models.llama import LlamaConfig

NEEDLESS = (r"(.*\.)?rotary_emb\.inv_freq",)


def configure(config: Options) -> dict[str, Any]:
    """Read a Llama, which has biases everywhere or nowhere."""
    config.only("rope_interleaved", False)  # of nanotron, as SmolLM's files say
    config.use("is_llama_config")
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
    }
    return joined(sizes(config), rotary(config), {"imported": imported})


def sizes(config: Options, *, is_tied: bool = False, act: str = "hidden_act") -> dict[str, Any]:
    """Read what all models of this shape write alike; is_tied: where the file does not say."""
    return {
        "architecture": "llama",
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": config.integer("hidden_size"),
        "num_layers": num_layers(config),
        "num_heads": (num_heads := config.integer("num_attention_heads")),
        "num_kv_heads": config.integer("num_key_value_heads", num_heads),
        "head_dim": config.integer("head_dim") if "head_dim" in config else None,
        "ffn_dim": config.integer("intermediate_size"),
        "norm_epsilon": config.number("rms_norm_eps", 1e-6),
        "activation": read_activation(config, act, "silu"),
        "tied_embeddings": config.flag("tie_word_embeddings", is_tied),
        **special_ids(config),
    }


def head_size(config: Options) -> int:
    whole = config.integer("hidden_size") // max(config.integer("num_attention_heads"), 1)
    return config.integer("head_dim", whole)


def rotary(
    config: Options, *, theta: float = 10000.0, rope: Options | None = None
) -> dict[str, Any]:
    """Compute one table for all layers."""
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
    """Give Llama's names, which Mistral, Qwen and SmolLM have taken over."""
    return Table(NAMES | NORMS, needless=NEEDLESS, prefix="model.")


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
FAMILY = LanguageFamily(configure, table)

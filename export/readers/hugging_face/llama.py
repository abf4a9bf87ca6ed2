"""Llama (1 to 3.2, SmolLM and SmolLM2 too), and what models of its shape are read by."""

from typing import Any

from export.readers.hugging_face.decoder_only import (
    Family,
    Placement,
    activation,
    num_layers,
    special_ids,
)
from export.readers.hugging_face.options import Options
from export.readers.hugging_face.rope import read_rotary, rope_section
from export.readers.hugging_face.tensors import Source, Tensors
from models.configs.language_models.llama import LlamaConfig

NEEDLESS = r"(.*\.)?rotary_emb\.inv_freq"


def configure(config: Options) -> dict[str, Any]:
    """Of Llama: biases everywhere or nowhere."""
    has_bias = config.flag("attention_bias", False)
    return {
        **sizes(config),
        **rotary(config),
        "attention_bias": "all" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
    }


def sizes(config: Options, *, is_tied: bool = False, act: str = "hidden_act") -> dict[str, Any]:
    """What all models of this shape write alike; is_tied: where the file does not say."""
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
        "activation": activation(config, act, "silu"),
        "tied_embeddings": config.flag("tie_word_embeddings", is_tied),
        **special_ids(config),
    }


def head_size(config: Options) -> int:
    whole = config.integer("hidden_size") // max(config.integer("num_attention_heads"), 1)
    return config.integer("head_dim", whole)


def rotary(
    config: Options, *, theta: float = 10000.0, rope: Options | None = None
) -> dict[str, Any]:
    """One table for all layers."""
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
    return {"window": window, "layers_without_window": full}


def place(options: Options, config: LlamaConfig, tensors: Tensors) -> dict[str, Source]:
    """Names of Llama, which Mistral, Qwen and SmolLM have taken over."""
    return placed(config, tensors, NORMS).weights


def placed(config: LlamaConfig, tensors: Tensors, norms: dict[str, str]) -> Placement:
    """norms: a layer's, theirs by ours."""
    found = Placement(tensors.without("model."))
    outer_weights(found, config)
    for layer in range(config.num_layers):
        attention_weights(found, config, layer)
        theirs, ours = f"model.layers.{layer}.mlp", f"layers.{layer}.feed_forward"
        sizes, bias = (config.ffn_dim, config.d_model), config.ffn_bias
        found.linear(f"{ours}.gate", f"{theirs}.gate_proj", *sizes, bias=bias)
        found.linear(f"{ours}.up", f"{theirs}.up_proj", *sizes, bias=bias)
        found.linear(f"{ours}.down", f"{theirs}.down_proj", *sizes[::-1], bias=bias)
        norm_weights(found, config, layer, norms)
    return found


NORMS = {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}


def outer_weights(found: Placement, config: LlamaConfig) -> None:
    """Of the vocabulary, and the last norm."""
    shape = (config.vocab_size, config.d_model)
    found.take("embedding.weight", "model.embed_tokens.weight", *shape)
    found.take("norm.weight", "model.norm.weight", config.d_model)
    if not config.tied_embeddings:
        found.take("output.weight", "lm_head.weight", *shape)
    found.tensors.drop(NEEDLESS)
    if config.tied_embeddings:
        found.tensors.drop(r"lm_head\.weight")


def norm_weights(found: Placement, config: LlamaConfig, layer: int, names: dict[str, str]) -> None:
    for ours, theirs in names.items():
        name = f"model.layers.{layer}.{theirs}.weight"
        found.take(f"layers.{layer}.{ours}.weight", name, config.d_model)


def attention_weights(found: Placement, config: LlamaConfig, layer: int) -> None:
    theirs, ours = f"model.layers.{layer}.self_attn", f"layers.{layer}.attention"
    dims = {"query": config.num_heads, "key": config.num_kv_heads, "value": config.num_kv_heads}
    bias = config.attention_bias != "none"
    for part, heads in dims.items():
        out = heads * config.head_size
        found.linear(f"{ours}.{part}", f"{theirs}.{part[0]}_proj", out, config.d_model, bias=bias)
    into, bias = config.num_heads * config.head_size, config.attention_bias == "all"
    found.linear(f"{ours}.output", f"{theirs}.o_proj", config.d_model, into, bias=bias)
    if config.qk_norm:
        for part in ("query", "key"):
            name = f"{theirs}.{part[0]}_norm.weight"
            found.take(f"{ours}.{part}_norm.weight", name, config.head_size)


FAMILY = Family(configure, place)

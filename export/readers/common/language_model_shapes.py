"""Shapes of the weights of decoder-only language models."""

from collections import ChainMap

from export.readers.common.shapes import (
    Shapes,
    attention_shapes,
    gated_shapes,
    linear_shapes,
    norm_shapes,
    repeat_layers,
)
from models.architectures.gpt2.config import GPT2Config
from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.architectures.llama.config import LatentAttention, LlamaConfig
from models.architectures.mamba.config import MambaConfig
from models.architectures.mamba2.config import Mamba2Config
from models.configs.transformer import Experts

NORMS = ("attention_norm", "feed_forward_norm")
SANDWICH = (*NORMS, "attention_output_norm", "feed_forward_output_norm")


def language_model_shapes(
    config: GPT2Config | GPTNeoXConfig | LlamaConfig | MambaConfig | Mamba2Config,
) -> Shapes:
    """Return the shapes of all weights of a decoder-only language model."""
    tables = ("embedding.weight", "output.weight")[: 1 if config.tied_embeddings else 2]
    weights: Shapes = dict.fromkeys(tables, (config.vocab_size, config.d_model))
    if isinstance(config, LlamaConfig):
        return weights | _llama(config)
    if isinstance(config, Mamba2Config):
        return weights | _mamba2(config)
    if isinstance(config, MambaConfig):
        return weights | _mamba(config)
    return weights | (_gpt2(config) if isinstance(config, GPT2Config) else _gpt_neox(config))


def _gpt2(config: GPT2Config) -> Shapes:
    dim, wide, heads = config.d_model, config.ffn_dim, config.num_heads
    matrices = attention_shapes("attention", dim, heads, heads, config.head_size)
    matrices |= {"feed_forward.up": (wide, dim), "feed_forward.down": (dim, wide)}
    layer = linear_shapes(matrices, bias=True) | norm_shapes(NORMS, dim, bias=True)
    weights = norm_shapes(["norm"], dim, bias=True) | repeat_layers(
        "layers", config.num_layers, layer
    )
    return weights | {"positions.weight": (config.context_length, dim)}


def _gpt_neox(config: GPTNeoXConfig) -> Shapes:
    imported, dim, wide = config.imported, config.d_model, config.ffn_dim
    heads, size = {"query": config.num_heads, "key": config.kv_heads}, config.head_size
    matrices = attention_shapes("attention", dim, heads["query"], heads["key"], size)
    dense = {"feed_forward.up": (wide, dim), "feed_forward.down": (dim, wide)}
    dense |= {"feed_forward.gate": (wide, dim)} if imported.gated_ffn else {}
    layer = linear_shapes(matrices, bias=imported.attention_bias)
    layer |= linear_shapes(dense, bias=imported.ffn_bias) | norm_shapes(NORMS, dim, bias=True)
    if imported.qk_norm:
        layer |= {f"attention.{part}_norm.weight": (num, size) for part, num in heads.items()}
    outer = ["norm", "embedding_norm"][: 1 + imported.embedding_norm]
    weights = norm_shapes(outer, dim, bias=True) | repeat_layers("layers", config.num_layers, layer)
    if imported.output_bias:
        weights["output.bias"] = (config.vocab_size,)
    if imported.position_biases:
        weights["position_biases.weight"] = (config.context_length, config.num_heads)
    return weights


def _llama(config: LlamaConfig) -> Shapes:
    dim, has_bias = config.d_model, config.imported.attention_bias
    heads = attention_shapes(
        "attention", dim, config.num_heads, config.num_kv_heads, config.head_size
    )
    output = {"attention.output": heads.pop("attention.output")}
    layer = linear_shapes(heads, bias=has_bias != "none") | linear_shapes(
        output, bias=has_bias == "all"
    )
    if config.imported.latent_attention is not None:
        layer = _latent_attention(config, config.imported.latent_attention)
    names = SANDWICH if config.imported.sandwich_norms else NORMS
    layer |= norm_shapes(
        names if config.imported.input_norms else names[len(NORMS) :], dim, bias=False
    )
    if config.imported.qk_norm:
        for part, count in (("query", config.num_heads), ("key", config.num_kv_heads)):
            size = config.head_size * (count if config.imported.qk_norm_spans_heads else 1)
            layer |= norm_shapes([f"attention.{part}_norm"], size, bias=False)
    if config.imported.attention_sinks:
        layer["attention.sinks"] = (config.num_heads,)
    weights = norm_shapes(["norm"], dim, bias=False) | repeat_layers(
        "layers", config.num_layers, layer
    )
    matrices = gated_shapes("feed_forward", dim, config.ffn_dim)
    if not config.imported.gated_ffn:
        del matrices["feed_forward.gate"]
    dense = linear_shapes(matrices, bias=config.imported.ffn_bias)
    for number in range(config.num_layers):
        experts = config.experts_of(number)
        feed_forward = dense if experts is None else _experts(experts, dim)
        weights |= {f"layers.{number}.{name}": shape for name, shape in feed_forward.items()}
    return weights


def _latent_attention(config: LlamaConfig, latent: LatentAttention) -> Shapes:
    dim, heads, shared = config.d_model, config.num_heads, 2 * len(config.frequencies)
    matrices = {
        "latent": (latent.size, dim),
        "shared_key": (shared, dim),
        "key": (heads * (config.head_size - shared), latent.size),
        "value": (heads * latent.value_size, latent.size),
        "query": (heads * config.head_size, latent.query_size or dim),
        "output": (dim, heads * latent.value_size),
    }
    weights = norm_shapes(["attention.latent_norm"], latent.size, bias=False)
    if latent.query_size is not None:
        matrices["query_latent"] = (latent.query_size, dim)
        weights |= norm_shapes(["attention.query_latent_norm"], latent.query_size, bias=False)
    named = {f"attention.{name}": shape for name, shape in matrices.items()}
    return weights | linear_shapes(named, bias=False)


def _experts(experts: Experts, dim: int) -> Shapes:
    names = (f"feed_forward.experts.{number}" for number in range(experts.num_experts))
    matrices = [gated_shapes(name, dim, experts.ffn_dim) for name in names]
    router = {"feed_forward.router": (experts.num_experts, dim)}
    shapes = linear_shapes(router | dict(ChainMap(*matrices)), bias=experts.bias)
    if experts.selection_bias:
        shapes["feed_forward.selection_bias"] = (experts.num_experts,)
    if experts.shared_ffn_dim is not None:
        shared = gated_shapes("feed_forward.shared", dim, experts.shared_ffn_dim)
        shapes |= linear_shapes(shared, bias=False)
    if experts.has_shared_gate:
        shapes |= linear_shapes({"feed_forward.shared_gate": (1, dim)}, bias=False)
    return shapes


def _mamba(config: MambaConfig) -> Shapes:
    dim, inner, biases = config.d_model, config.inner_dim, config.imported.biases
    outer = {"mixer.x": (inner, dim), "mixer.z": (inner, dim), "mixer.output": (dim, inner)}
    projected = {"low": config.step_rank, "B": config.state_dim, "C": config.state_dim}
    layer = linear_shapes(outer, bias=biases) | norm_shapes(["norm"], dim, bias=False)
    layer |= linear_shapes(
        {f"mixer.{name}": (size, inner) for name, size in projected.items()}, bias=False
    )
    layer |= linear_shapes({"mixer.dt": (inner, config.step_rank)}, bias=True)
    layer |= {"mixer.A_log": (inner, config.state_dim), "mixer.D": (inner,)}
    return _state_spaces(config, layer | _convolution(config, inner))


def _mamba2(config: Mamba2Config) -> Shapes:
    dim, heads, channels = (
        config.d_model,
        (config.num_heads,),
        sum(config.convolution_sizes.values()),
    )
    matrices = {f"mixer.{part}": (size, dim) for part, size in config.projection_sizes.items()}
    matrices["mixer.output"] = (dim, config.inner_dim)
    layer = linear_shapes(matrices, bias=config.imported.biases) | norm_shapes(
        ["norm"], dim, bias=False
    )
    layer |= norm_shapes(["mixer.norm"], config.inner_dim, bias=False)
    layer |= {f"mixer.{name}": heads for name in ("A_log", "D", "dt_bias")}
    return _state_spaces(config, layer | _convolution(config, channels))


def _convolution(config: MambaConfig | Mamba2Config, channels: int) -> Shapes:
    bias: Shapes = {"mixer.conv.bias": (channels,)} if config.imported.conv_bias else {}
    return {"mixer.conv.weight": (channels, 1, config.conv_kernel_size)} | bias


def _state_spaces(config: MambaConfig | Mamba2Config, layer: Shapes) -> Shapes:
    whole = norm_shapes(["norm"], config.d_model, bias=False)
    return whole | repeat_layers("layers", config.num_layers, layer)

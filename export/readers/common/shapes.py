"""Shapes and names of the weights of Transformers and recurrent models, activations, sinusoids."""

import math
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from export.readers.common.options import Options
from export.readers.common.weights import Shape
from models.architectures.gpt2.config import GPT2Config
from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.architectures.llama.config import LatentAttention, LlamaConfig
from models.architectures.luong.config import LuongConfig
from models.architectures.mamba.config import MambaConfig
from models.architectures.mamba2.config import Mamba2Config
from models.configs.recurrent import RecurrentConfig
from models.configs.transformer import BaseTransformerConfig, Experts, Learned, Relative
from models.layers.equations import CELLS
from models.safetensors import Array

Shapes = dict[str, Shape]
STACKS = ("encoder", "decoder")


def linear_shapes(shapes: Mapping[str, tuple[int, int]], *, bias: bool) -> Shapes:
    """Return the shapes of matrices [out, in] by name, each with a bias if there are any."""
    weights: Shapes = {f"{name}.weight": shape for name, shape in shapes.items()}
    return weights | ({f"{name}.bias": shape[:1] for name, shape in shapes.items()} if bias else {})


def norm_shapes(names: Iterable[str], size: int, *, bias: bool) -> Shapes:
    """Return the shapes of scales by name, each with a bias if there are any."""
    return {f"{name}.{part}": (size,) for name in names for part in ("weight", "bias")[: 1 + bias]}


def repeat_layers(layers: str, number: int, layer: Shapes) -> Shapes:
    """Return the weights of `number` layers that are alike."""
    return {f"{layers}.{n}.{name}": shape for n in range(number) for name, shape in layer.items()}


def vocabulary_shapes(
    config: BaseTransformerConfig | RecurrentConfig, embedding: int, readout: int
) -> Shapes:
    """Return the shapes of one table for source, target and output, or of three."""
    if config.tied_embeddings:
        return {"embedding.weight": (config.vocab_size, embedding)}
    return {
        "source_embedding.weight": (config.source_vocabulary, embedding),
        "target_embedding.weight": (config.vocab_size, embedding),
        "output.weight": (config.vocab_size, readout),
    }


def transformer_shapes(config: BaseTransformerConfig) -> Shapes:
    """Return all weights of a Transformer for translation."""
    weights = vocabulary_shapes(config, config.d_model, config.d_model)
    if config.imported.output_bias:
        weights["output_bias"] = (config.vocab_size,)
    for stack in STACKS:
        outer = ["embedding_norm"] * config.imported.embedding_norm + [
            "norm"
        ] * config.has_final_norm
        weights |= _norms(config, [f"{stack}.{name}" for name in outer]) | _positions(config, stack)
    weights |= repeat_layers(
        "encoder.layers", config.encoder_layers, _layer(config.encoder_side, "self_attention")
    )
    is_recurrent = config.architecture == "transformer-ssru"
    first = "recurrence" if is_recurrent else "self_attention"
    layer = _layer(config, first, "cross_attention")
    return weights | repeat_layers("decoder.layers", config.decoder_layers, layer)


def _positions(config: BaseTransformerConfig, stack: str) -> Shapes:
    longest = config.max_source_tokens if stack == "encoder" else config.max_target_tokens
    name = f"{stack}.positions.weight"
    match config.positions:
        case Learned():
            return {name: (longest, config.d_model)}
        case Relative(num_buckets=num_buckets):
            return {name: (num_buckets, config.num_biases(stack))}
        case _:
            return {}


def _layer(config: BaseTransformerConfig, *attentions: str) -> Shapes:
    dim, wide = config.d_model, config.ffn_dim
    matrices = {"feed_forward.up": (wide, dim), "feed_forward.down": (dim, wide)}
    if config.gated_ffn:
        matrices["feed_forward.gate"] = (wide, dim)
    weights = _norms(config, [f"{name}_norm" for name in (*attentions, "feed_forward")])
    for name in attentions:
        if name == "recurrence":
            weights |= linear_shapes({f"{name}.forget": (dim, dim)}, bias=True)
            weights |= linear_shapes({f"{name}.input": (dim, dim)}, bias=False)
        else:
            matrices |= attention_shapes(
                name, dim, config.num_heads, config.kv_heads, config.head_size
            )
    return weights | linear_shapes(matrices, bias=config.imported.biases)


def attention_shapes(
    name: str, dim: int, heads: int, kv_heads: int, head_size: int
) -> dict[str, tuple[int, int]]:
    """Return the shapes of queries, keys, values and what comes out."""
    inner, shared = heads * head_size, kv_heads * head_size
    rows = {"query": inner, "key": shared, "value": shared}
    return {f"{name}.{part}": (size, dim) for part, size in rows.items()} | {
        f"{name}.output": (dim, inner)
    }


def _norms(config: BaseTransformerConfig, names: Iterable[str]) -> Shapes:
    return norm_shapes(names, config.d_model, bias=config.norm.kind == "layer")


def luong_shapes(config: LuongConfig) -> Shapes:
    """Return the shapes of all weights."""
    dim, readout, biases = config.hidden_dim, config.readout_dim, config.imported.biases
    weights = vocabulary_shapes(config, config.embedding_dim, readout)
    weights |= {"output_bias": (config.vocab_size,)} | _encoder(config)
    for layer in range(config.num_layers):
        name, gates = f"decoder.layers.{layer}", CELLS[config.cell].num_gates * dim
        into = dim if layer else config.embedding_dim
        weights |= linear_shapes(
            {f"{name}.input": (gates, into), f"{name}.hidden": (gates, dim)}, bias=True
        )
        if layer == 0 and config.input_feeding:
            weights[f"{name}.context.weight"] = (gates, readout)
    weights |= linear_shapes({"readout": (readout, config.encoder_dim + dim)}, bias=biases)
    if config.score != "dot":
        weights["attention.score.key.weight"] = (dim, config.encoder_dim)
    if config.score == "concat":
        weights |= linear_shapes({"attention.score.query": (dim, dim)}, bias=biases)
        weights["attention.score.score.weight"] = (1, dim)
    return weights


def _encoder(config: LuongConfig) -> Shapes:
    """Return the encoder's; each direction has its part of a vector."""
    weights: Shapes = {}
    dim = config.encoder_dim // config.num_directions
    gates = CELLS[config.cell].num_gates * dim
    for layer in range(config.layers_of_encoder):
        into = config.encoder_dim if layer else config.embedding_dim
        for end in (f"l{layer}", f"l{layer}_reverse")[: config.num_directions]:
            weights |= {f"encoder.weight_ih_{end}": (gates, into)}
            weights |= {f"encoder.weight_hh_{end}": (gates, dim)}
            weights |= {f"encoder.bias_{part}_{end}": (gates,) for part in ("ih", "hh")}
    return weights | _bridge(config, dim * config.num_layers)


def _bridge(config: LuongConfig, size: int) -> Shapes:
    """Return the shapes of the weights between encoder and decoder.

    size: of a direction's states in all layers.
    """
    num_states = CELLS[config.cell].num_states
    kinds = {
        "relu": (num_states, (size, size)),
        "linear": (num_states, (config.hidden_dim, config.encoder_dim)),
        "tanh": (1, (config.hidden_dim, config.encoder_dim)),
    }
    number, shape = kinds.get(config.imported.bridge, (0, (0, 0)))
    return linear_shapes({f"bridge.parts.{n}": shape for n in range(number)}, bias=True)


def recurrent_encoder_names(config: LuongConfig, theirs: str) -> dict[str, str]:
    """Return the names of the encoder's weights in torch modules."""
    names = (name for name in _encoder(config) if name.startswith("encoder."))
    return {name: name.replace("encoder.", f"{theirs}.") for name in names}


ACTIVATIONS = {  # theirs -> ours
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}


def read_activation(options: Options, name: str, default: str) -> str:
    """Read the option `name` as one of ours; one that we have not is a problem."""
    word = options.word(name, default)
    if word not in ACTIVATIONS:
        options.refuse(name)
    return ACTIVATIONS.get(word, "relu")


def sinusoids(
    shape: tuple[int, ...],
    first: int = 0,
    *,
    rates: Literal["vaswani", "tensor2tensor"] = "tensor2tensor",
    precision: type[np.floating] = np.float32,
) -> Array:
    """Compute positions from `first` on: f32 [positions, dim]; if dim is odd, the last is 0.

    rates: of pair i of n, 10000^(-i / n) (Vaswani et al. 2017), or 10000^(-i / (n - 1)), of which
        the last is 1/10000 exactly (tensor2tensor, and what came after it).
    precision: what the angles are computed in, as the toolkit did.
    """
    num_positions, dim = shape
    pairs = np.arange(dim // 2, dtype=precision)
    positions = np.arange(first, first + num_positions, dtype=precision)[:, None]
    if rates == "vaswani":
        angles = positions / 10000.0 ** (2 * pairs / dim)
    else:
        step = precision(-math.log(10000) / max(len(pairs) - 1, 1))
        angles = positions * np.exp(pairs * step)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return np.pad(table, ((0, 0), (0, dim % 2)))


_LAYER = {
    "self_attention.query": "self_attn.q_proj",
    "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj",
    "self_attention.output": "self_attn.out_proj",
    "self_attention_norm": "self_attn_layer_norm",
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.key": "encoder_attn.k_proj",
    "cross_attention.value": "encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "feed_forward_norm": "final_layer_norm",
}


def stack_names(before: str = "") -> dict[str, str]:
    """Return the file's names by ours, for both stacks; `before` is the prefix of the file's
    names.
    """
    names = {f"layers.*.{ours}": f"layers.*.{theirs}" for ours, theirs in _LAYER.items()}
    names |= {"norm": "layer_norm", "embedding_norm": "layernorm_embedding"}
    return {
        f"{stack}.{ours}": f"{before}{stack}.{theirs}"
        for stack in STACKS
        for ours, theirs in names.items()
    }


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


def gated_shapes(name: str, dim: int, wide: int) -> dict[str, tuple[int, int]]:
    parts = {"gate": (wide, dim), "up": (wide, dim), "down": (dim, wide)}
    return {f"{name}.{part}": shape for part, shape in parts.items()}


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

"""What readers of translators share: shapes and names of weights, activations, sinusoids."""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from export.readers.common.options import Options
from export.readers.common.weights import Shape
from models.architectures.luong.config import LuongConfig
from models.configs.recurrent import RecurrentConfig
from models.configs.transformer import BaseTransformerConfig, Learned, Relative
from models.layers.equations import CELLS
from models.safetensors import Array

Shapes = dict[str, Shape]
STACKS = ("encoder", "decoder")
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
_LAYER = {  # in fairseq and what came after it, by our names
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


def linear_shapes(shapes: Mapping[str, tuple[int, int]], *, bias: bool) -> Shapes:
    """Return the shapes of matrices [out, in] by name, each with a bias if there are any."""
    weights: Shapes = {f"{name}.weight": shape for name, shape in shapes.items()}
    return weights | ({f"{name}.bias": shape[:1] for name, shape in shapes.items()} if bias else {})


def norm_shapes(names: Iterable[str], size: int, *, bias: bool) -> Shapes:
    """Return the shapes of scales by name, each with a bias if there are any."""
    return {f"{name}.{part}": (size,) for name in names for part in ("weight", "bias")[: 1 + bias]}


def repeat_layers(layers: str, number: int, layer: Shapes) -> Shapes:
    """Return the shapes of `number` layers that are alike."""
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
    """Return the shapes of all weights of a Transformer for translation."""
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
    """Return the shapes of all weights of a recurrent translator."""
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
    """Return the shapes of the encoder and the bridge; each direction has its part of a vector."""
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


def gated_shapes(name: str, dim: int, wide: int) -> dict[str, tuple[int, int]]:
    parts = {"gate": (wide, dim), "up": (wide, dim), "down": (dim, wide)}
    return {f"{name}.{part}": shape for part, shape in parts.items()}

"""Tells which weights translators of ours have, and their shapes by the configuration."""

from collections.abc import Iterable, Mapping

from export.readers.common.weights import Shape
from models.configs.positions import Learned, Relative
from models.configs.recurrent import RecurrentConfig
from models.configs.translators.transformer import TransformerSizes

Shapes = dict[str, Shape]
STACKS = ("encoder", "decoder")


def linears(shapes: Mapping[str, tuple[int, int]], *, bias: bool) -> Shapes:
    """Give matrices [out, in] by name, each with a bias if there are any."""
    found: Shapes = {f"{name}.weight": shape for name, shape in shapes.items()}
    return found | ({f"{name}.bias": shape[:1] for name, shape in shapes.items()} if bias else {})


def norms(names: Iterable[str], size: int, *, bias: bool) -> Shapes:
    """Give scales by name, each with a bias if there are any."""
    return {f"{name}.{part}": (size,) for name in names for part in ("weight", "bias")[: 1 + bias]}


def repeated(layers: str, number: int, layer: Shapes) -> Shapes:
    """Give the weights of `number` layers that are alike."""
    return {f"{layers}.{n}.{name}": shape for n in range(number) for name, shape in layer.items()}


def vocabulary(config: TransformerSizes | RecurrentConfig, embedding: int, readout: int) -> Shapes:
    """Give one table for source, target and output, or three, of vectors of these sizes."""
    if config.tied_embeddings:
        return {"embedding.weight": (config.vocab_size, embedding)}
    return {
        "source_embedding.weight": (config.source_vocabulary, embedding),
        "target_embedding.weight": (config.vocab_size, embedding),
        "output.weight": (config.vocab_size, readout),
    }


def transformer_shapes(config: TransformerSizes) -> Shapes:
    """Give all weights of a Transformer for translation."""
    found = vocabulary(config, config.d_model, config.d_model)
    if config.imported.output_bias:
        found["output_bias"] = (config.vocab_size,)
    for stack in STACKS:
        outer = ["embedding_norm"] * config.imported.embedding_norm + [
            "norm"
        ] * config.has_final_norm
        found |= _norms(config, [f"{stack}.{name}" for name in outer]) | _positions(config, stack)
    found |= repeated("encoder.layers", config.encoder_layers, _layer(config, "self_attention"))
    is_recurrent = config.architecture == "transformer-ssru"
    first = "recurrence" if is_recurrent else "self_attention"
    layer = _layer(config, first, "cross_attention")
    return found | repeated("decoder.layers", config.decoder_layers, layer)


def _positions(config: TransformerSizes, stack: str) -> Shapes:
    longest = config.max_source_tokens if stack == "encoder" else config.max_target_tokens
    name = f"{stack}.positions.weight"
    match config.positions:
        case Learned():
            return {name: (longest, config.d_model)}
        case Relative(num_buckets=num_buckets):
            return {name: (num_buckets, config.num_heads)}
        case _:
            return {}


def _layer(config: TransformerSizes, *attentions: str) -> Shapes:
    dim, wide = config.d_model, config.ffn_dim
    matrices = {"feed_forward.up": (wide, dim), "feed_forward.down": (dim, wide)}
    if config.gated_ffn:
        matrices["feed_forward.gate"] = (wide, dim)
    found = _norms(config, [f"{name}_norm" for name in (*attentions, "feed_forward")])
    for name in attentions:
        if name == "recurrence":
            found |= linears({f"{name}.forget": (dim, dim)}, bias=True)
            found |= linears({f"{name}.input": (dim, dim)}, bias=False)
        else:
            matrices |= attention(name, dim, config.num_heads, config.kv_heads, config.head_size)
    return found | linears(matrices, bias=config.imported.biases)


def attention(
    name: str, dim: int, heads: int, kv_heads: int, head_size: int
) -> dict[str, tuple[int, int]]:
    """Give the shapes of queries, keys, values and what comes out."""
    inner, shared = heads * head_size, kv_heads * head_size
    rows = {"query": inner, "key": shared, "value": shared}
    return {f"{name}.{part}": (size, dim) for part, size in rows.items()} | {
        f"{name}.output": (dim, inner)
    }


def _norms(config: TransformerSizes, names: Iterable[str]) -> Shapes:
    return norms(names, config.d_model, bias=config.norm.kind == "layer")

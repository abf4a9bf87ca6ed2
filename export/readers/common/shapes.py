"""The weights that translators of ours have: their names, and shapes by the configuration."""

from export.readers.common.weights import Shape
from models.configs.recurrent import RecurrentConfig
from models.configs.translators.transformer import TransformerSizes

Shapes = dict[str, Shape]
STACKS = ("encoder", "decoder")


def linear(name: str, out: int, into: int, *, bias: bool) -> Shapes:
    """A matrix [out, in] and a bias, if there is one."""
    found: Shapes = {f"{name}.weight": (out, into)}
    return found | {f"{name}.bias": (out,)} if bias else found


def norm(name: str, size: int, *, bias: bool) -> Shapes:
    """A scale and a bias, if there is one."""
    return {f"{name}.{part}": (size,) for part in ("weight", "bias")[: 1 + bias]}


def vocabulary(
    config: TransformerSizes | RecurrentConfig, embedding_dim: int, readout_dim: int, *, bias: bool
) -> Shapes:
    """One table for source, target and output, or three. bias: of the output."""
    found: Shapes = {"output_bias": (config.vocab_size,)} if bias else {}
    if config.tied_embeddings:
        return found | {"embedding.weight": (config.vocab_size, embedding_dim)}
    return found | {
        "source_embedding.weight": (config.source_vocabulary, embedding_dim),
        "target_embedding.weight": (config.vocab_size, embedding_dim),
        "output.weight": (config.vocab_size, readout_dim),
    }


def transformer_shapes(config: TransformerSizes) -> Shapes:
    """All weights of a Transformer for translation."""
    found = vocabulary(config, config.d_model, config.d_model, bias=config.output_bias)
    for stack in STACKS:
        found |= _positions(config, stack)
        names = ["embedding_norm"] * config.embedding_norm + ["norm"] * config.has_final_norm
        for name in names:
            found |= _norm(config, f"{stack}.{name}")
    for n in range(config.encoder_layers):
        found |= _layer(config, f"encoder.layers.{n}", ("self_attention",))
    is_recurrent = config.architecture == "transformer-ssru"
    first = "recurrence" if is_recurrent else "self_attention"
    for n in range(config.decoder_layers):
        found |= _layer(config, f"decoder.layers.{n}", (first, "cross_attention"))
    return found


def _positions(config: TransformerSizes, stack: str) -> Shapes:
    lengths = {"encoder": config.max_source_tokens, "decoder": config.max_target_tokens}
    shapes = {
        "learned": (lengths[stack], config.d_model),
        "relative": (config.num_buckets, config.num_heads),
    }
    is_held = config.positions in shapes
    return {f"{stack}.positions.weight": shapes[config.positions]} if is_held else {}


def _layer(config: TransformerSizes, layer: str, attentions: tuple[str, ...]) -> Shapes:
    dim, wide, bias = config.d_model, config.ffn_dim, config.biases
    found: Shapes = {}
    for name in attentions:
        make = _recurrence if name == "recurrence" else _attention
        found |= make(config, f"{layer}.{name}") | _norm(config, f"{layer}.{name}_norm")
    for name in ("gate", "up") if config.gated_ffn else ("up",):
        found |= linear(f"{layer}.feed_forward.{name}", wide, dim, bias=bias)
    found |= linear(f"{layer}.feed_forward.down", dim, wide, bias=bias)
    return found | _norm(config, f"{layer}.feed_forward_norm")


def _attention(config: TransformerSizes, name: str) -> Shapes:
    dim, bias, head_size = config.d_model, config.biases, config.head_size
    inner, kv_dim = config.num_heads * head_size, config.kv_heads * head_size
    found: Shapes = {}
    for part, size in (("query", inner), ("key", kv_dim), ("value", kv_dim)):
        found |= linear(f"{name}.{part}", size, dim, bias=bias)
    return found | linear(f"{name}.output", dim, inner, bias=bias)


def _recurrence(config: TransformerSizes, name: str) -> Shapes:
    dim = config.d_model
    forget = linear(f"{name}.forget", dim, dim, bias=True)
    return forget | linear(f"{name}.input", dim, dim, bias=False)


def _norm(config: TransformerSizes, name: str) -> Shapes:
    return norm(name, config.d_model, bias=config.norm_type == "layer")

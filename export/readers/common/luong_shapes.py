"""Tells which weights our `luong` has, and their shapes, for readers of other toolkits."""

from export.readers.common.shapes import Shapes, linears, vocabulary
from models.configs.translators.luong import LuongConfig
from models.layers.equations import CELLS


def luong_shapes(config: LuongConfig) -> Shapes:
    """Give all weights."""
    dim, readout, biases = config.hidden_dim, config.readout_dim, config.imported.biases
    found = vocabulary(config, config.embedding_dim, readout)
    found |= {"output_bias": (config.vocab_size,)} | _encoder(config)
    for layer in range(config.num_layers):
        name, gates = f"decoder.layers.{layer}", CELLS[config.cell].num_gates * dim
        into = dim if layer else config.embedding_dim
        found |= linears(
            {f"{name}.input": (gates, into), f"{name}.hidden": (gates, dim)}, bias=True
        )
        if layer == 0 and config.input_feeding:
            found[f"{name}.context.weight"] = (gates, readout)
    found |= linears({"readout": (readout, config.encoder_dim + dim)}, bias=biases)
    if config.score != "dot":
        found["attention.score.key.weight"] = (dim, config.encoder_dim)
    if config.score == "concat":
        found |= linears({"attention.score.query": (dim, dim)}, bias=biases)
        found["attention.score.score.weight"] = (1, dim)
    return found


def _encoder(config: LuongConfig) -> Shapes:
    """Give the encoder's; each direction has its part of a vector."""
    found: Shapes = {}
    dim = config.encoder_dim // config.num_directions
    gates = CELLS[config.cell].num_gates * dim
    for layer in range(config.layers_of_encoder):
        into = config.encoder_dim if layer else config.embedding_dim
        for end in (f"l{layer}", f"l{layer}_reverse")[: config.num_directions]:
            found |= {f"encoder.weight_ih_{end}": (gates, into)}
            found |= {f"encoder.weight_hh_{end}": (gates, dim)}
            found |= {f"encoder.bias_{part}_{end}": (gates,) for part in ("ih", "hh")}
    return found | _bridge(config, dim * config.num_layers)


def _bridge(config: LuongConfig, size: int) -> Shapes:
    """Give those between encoder and decoder; size: of a direction's states in all layers."""
    num_states = CELLS[config.cell].num_states
    kinds = {
        "relu": (num_states, (size, size)),
        "linear": (num_states, (config.hidden_dim, config.encoder_dim)),
        "tanh": (1, (config.hidden_dim, config.encoder_dim)),
    }
    number, shape = kinds.get(config.imported.bridge, (0, (0, 0)))
    return linears({f"bridge.parts.{n}": shape for n in range(number)}, bias=True)


def encoder_names(config: LuongConfig, theirs: str) -> dict[str, str]:
    """Name the encoder's weights as torch does, in their module."""
    names = (name for name in _encoder(config) if name.startswith("encoder."))
    return {name: name.replace("encoder.", f"{theirs}.") for name in names}

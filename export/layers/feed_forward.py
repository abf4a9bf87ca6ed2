"""Feeds forward between attention layers, as `models.layers.feed_forward` does."""

from collections.abc import Callable

from export.graph.value import Value
from export.layers.basic import Layers
from models.layers.equations import activated


def feed_forward(
    layers: Layers,
    x: Value,
    name: str,
    dims: tuple[int, int],
    activation: str,
    *,
    is_gated: bool,
    bias: bool,
) -> Value:
    """Feed x [..., d_model] forward, without the residual sum. dims: d_model and ffn_dim."""
    d_model, ffn_dim = dims
    names = [f"{name}.gate", f"{name}.up"] if is_gated else [f"{name}.up"]
    sizes = [ffn_dim] * len(names)
    parts = layers.graph.split(layers.linear(x, names, d_model, sizes, bias=bias), sizes)
    inner = activated(ACTIVATIONS[activation], *parts)
    return layers.linear(inner, [f"{name}.down"], ffn_dim, [d_model], bias=bias)


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda x: x.relu(),
    "gelu": lambda x: x.graph.op.Gelu(x),
    "gelu_tanh": lambda x: x.graph.op.Gelu(x, approximate="tanh"),  # GPT-2's
    "swish": lambda x: x * x.sigmoid(),
}

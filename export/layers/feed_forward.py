"""The feed-forward network between attention layers, as `models.layers.feed_forward` has it."""

from collections.abc import Callable

from export.graph.writer import GraphWriter, Value
from export.layers.basic import Layers


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
    """x [..., d_model] -> [..., d_model], without the residual sum. dims: d_model and ffn_dim."""
    d_model, ffn_dim = dims
    names = [f"{name}.gate", f"{name}.up"] if is_gated else [f"{name}.up"]
    sizes = [ffn_dim] * len(names)
    parts = layers.graph.split(layers.linear(x, names, d_model, sizes, bias=bias), sizes)
    y = ACTIVATIONS[activation](layers.graph, parts[0])
    if is_gated:
        y = layers.op.Mul(y, parts[1])
    return layers.linear(y, [f"{name}.down"], ffn_dim, [d_model], bias=bias)


ACTIVATIONS: dict[str, Callable[[GraphWriter, Value], Value]] = {
    "relu": lambda graph, x: graph.op.Relu(x),
    "gelu": lambda graph, x: graph.op.Gelu(x),
    "gelu_tanh": lambda graph, x: graph.op.Gelu(x, approximate="tanh"),  # GPT-2's
    "swish": lambda graph, x: graph.op.Mul(x, graph.op.Sigmoid(x)),
}

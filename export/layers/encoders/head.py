"""Ends an encoder as `models.layers.encoders.head` does."""

from collections.abc import Callable

from export.graph.value import Value
from export.layers.basic import Layers
from models.configs.encoders.head import EmbeddingHead, LabelHead

SHORTEST = 1e-12  # length that a vector is divided by, as in torch

SQUASHING: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x,
    "relu": lambda x: x.relu(),
    "gelu": lambda x: x.graph.op.Gelu(x),
    "tanh": lambda x: x.tanh(),
}


def finish(layers: Layers, x: Value, dim: int, config: EmbeddingHead | LabelHead) -> None:
    """Write the output of texts' vectors x [batch, dim]: `embedding` or `logits`, in fp32."""
    for number, dense in enumerate(config.dense):
        name = f"head.dense.{number}.linear"
        x = layers.linear(x, [name], dim, [dense.dim], bias=dense.bias)
        x, dim = SQUASHING[dense.activation](x), dense.dim
    if isinstance(config, LabelHead):
        size = len(config.labels)
        logits = layers.linear(x, ["head.labels"], dim, [size], bias=True)
        layers.graph.output("logits", logits.cast("float32"), "float32", (size,))
        return
    x = x.cast("float32")
    if config.normalised:
        length = layers.graph.op.Sqrt(layers.dot(x, x, dim))
        x = x / length.maximum(SHORTEST).unsqueeze(1)
    layers.graph.output("embedding", x, "float32", (dim,))

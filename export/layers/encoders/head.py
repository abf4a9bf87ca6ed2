"""Ends an encoder as `models.layers.encoders.head` does."""

from collections.abc import Callable

from export.graph.value import Value
from export.layers.basic import Layers
from models.configs.encoder import EmbeddingHead, EncoderConfig
from serving.bundle.manifest import EMBEDDING, LOGITS

SHORTEST = 1e-12  # length that a vector is divided by, as in torch

SQUASHING: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x,
    "relu": lambda x: x.relu(),
    "gelu": lambda x: x.graph.op.Gelu(x),
    "tanh": lambda x: x.tanh(),
}


def finish(layers: Layers, x: Value, config: EncoderConfig) -> None:
    """Write the output of texts' vectors x [batch, vector_dim], in fp32."""
    dim = config.vector_dim
    for number, dense in enumerate(config.head.dense):
        name = f"head.dense.{number}.linear"
        x = layers.linear(x, [name], dim, [dense.dim], bias=dense.bias)
        x, dim = SQUASHING[dense.activation](x), dense.dim
    if isinstance(config.head, EmbeddingHead):
        embedding = _normalised(layers, x, dim) if config.head.normalised else x.cast("float32")
        layers.graph.output(EMBEDDING, embedding, "float32", (dim,))
    else:
        size = len(config.labels)
        logits = layers.linear(x, ["head.labels"], dim, [size], bias=True)
        layers.graph.output(LOGITS, logits.cast("float32"), "float32", (size,))


def _normalised(layers: Layers, x: Value, dim: int) -> Value:
    """Stretch x [batch, dim] to length 1."""
    x = x.cast("float32")
    length = layers.graph.op.Sqrt(layers.dot(x, x, dim))
    return x / length.maximum(SHORTEST).unsqueeze(1)

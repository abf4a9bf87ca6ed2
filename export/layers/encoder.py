"""Graphs of models that only encode: `encode` puts out one vector of each text, or of each token,
and keeps no state.

`encode_attention` is the same graph and puts its attention weights out too. Pooling must not depend
on how far a row is padded: it multiplies by weights that are zero beyond a row's end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from export.graph.choice import WINDOW
from export.graph.model import ExportedModel, Weights
from export.graph.writer import GraphWriter, Value
from export.layers.attention import LOWEST, context_of, is_real
from export.layers.basic import ACTIVATIONS, Layers
from export.layers.memory import AttentionOutputs
from models.configs.base import EmbeddingHead, EncoderConfig, MaskedWordHead
from serving.bundle.manifest import (
    EMBEDDING,
    ENCODE_ATTENTION,
    LOGITS,
    SOURCE,
    TOP_IDS,
    TOP_LOGP,
    Limits,
    Precision,
)

Config = TypeVar("Config", bound=EncoderConfig)


class EncoderGraph(ABC, Generic[Config]):
    """One graph of a model that only encodes."""

    def __init__(self, config: Config, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.attention_outputs = self.make_attention_outputs()

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write all graphs."""
        names = ("encode", ENCODE_ATTENTION)
        in_blocks = cls.is_in_blocks(config)
        layers = [Layers(GraphWriter(n), weights, precision, in_blocks=in_blocks) for n in names]
        parts = [cls(config, layer) for layer in layers]
        for part in parts:
            part.write()
        limits, shapes = Limits(config.max_source_tokens, 0), parts[-1].attention_outputs.shapes
        return ExportedModel(tuple(part.graph for part in parts), (), limits, attention=shapes)

    @classmethod
    def is_in_blocks(cls, config: Config) -> bool:
        """Return whether int8 is by blocks of weights; see `Layers`."""
        return False

    def write(self) -> None:
        source_ids = self.graph.input("source_ids", "int64", (SOURCE,))
        lengths = self.graph.input("source_lengths", "int32", ())
        x = self.encode(source_ids, lengths)
        if isinstance(self.config.head, MaskedWordHead):
            put_masked_words(self.layers, x, source_ids, self.config, self.config.head)
        else:
            finish(self.layers, x, self.config)

    @abstractmethod
    def encode(self, ids: Value, lengths: Value) -> Value:
        """Return vectors [batch, vector_dim] of texts [batch, source] with lengths int32 [batch];
        [batch, source, vector_dim] if the head reads each token.
        """

    def make_attention_outputs(self) -> AttentionOutputs:
        return AttentionOutputs(self.graph)


SHORTEST = 1e-12  # length that a vector is divided by, as in torch


SQUASHING: dict[str, Callable[[Value], Value]] = {
    "none": lambda x: x,
    "relu": lambda x: x.relu(),
    "gelu": lambda x: x.graph.op.Gelu(x),
    "tanh": lambda x: x.tanh(),
}


def finish(layers: Layers, x: Value, config: EncoderConfig) -> None:
    """Write the graph's output, in fp32, for vectors x [..., vector_dim] of texts or tokens."""
    dim = config.vector_dim
    for number, dense in enumerate(config.head.dense):
        name = f"head.dense.{number}.linear"
        x = layers.linear(x, [name], dim, [dense.dim], bias=dense.bias)
        x, dim = SQUASHING[dense.activation](x), dense.dim
        if dense.norm_epsilon is not None:
            x = layers.layer_norm(x, f"head.dense.{number}.norm", dim, dense.norm_epsilon)
    if isinstance(config.head, EmbeddingHead):
        embedding = _normalise(layers, x, dim) if config.head.normalised else x.cast("float32")
        layers.graph.output(EMBEDDING, embedding, "float32", (dim,))
    else:
        size = len(config.labels)
        logits = layers.linear(x, ["head.labels"], dim, [size], bias=True)
        axes = (SOURCE, size) if config.head.per_token else (size,)
        layers.graph.output(LOGITS, logits.cast("float32"), "float32", axes)


def put_masked_words(
    layers: Layers, x: Value, ids: Value, config: EncoderConfig, head: MaskedWordHead
) -> None:
    """Write the likeliest tokens in the place of each mask, [batch, source, window], for tokens'
    vectors x [batch, source, vector_dim]. Other tokens get zeros: only masks are scored.
    """
    op, dim, size = layers.op, config.vector_dim, config.vocab_size
    is_mask = op.Equal(ids.reshape(-1), layers.graph.constant(head.mask_id, "int64"))
    places = op.NonZero(is_mask).reshape(-1)  # [masks]
    scored = op.Gather(x.reshape(-1, dim), places)
    scored = layers.linear(scored, ["head.dense"], dim, [dim], bias=True)
    scored = ACTIVATIONS[head.activation](scored)
    scored = layers.layer_norm(scored, "head.norm", dim, head.norm_epsilon)
    table = layers.table("embedding", size, dim)
    bias = layers.weights.take("head.bias", size)
    channels = layers.weights.channels(["embedding.weight"], [size])
    logits = layers.score(scored, "embedding", table, bias, channels).cast("float32")
    window = min(WINDOW, size)
    best = op.TopK(op.LogSoftmax(logits, axis=-1), layers.graph.ints(window), axis=-1, _outputs=2)
    for name, values in zip((TOP_LOGP, TOP_IDS), best, strict=True):
        spread = _at_places(values, places, ids, window)
        layers.graph.output(name, spread, values.dtype, (SOURCE, window))


def _at_places(values: Value, places: Value, ids: Value, window: int) -> Value:
    """Return [batch, source, window]: values [places, window] at the flat places, else zeros."""
    op, width = values.graph.op, values.graph.ints(window)
    nothing = values.graph.constant(0, values.dtype)
    zeros = op.Expand(nothing, op.Concat(ids.reshape(-1).length(0), width, axis=0))
    filled = op.ScatterND(zeros, places.unsqueeze(1), values)
    return op.Reshape(filled, op.Concat(op.Shape(ids), width, axis=0))


def _normalise(layers: Layers, x: Value, dim: int) -> Value:
    """Scale x [batch, dim] to length 1."""
    x = x.cast("float32")
    length = layers.graph.op.Sqrt(layers.dot(x, x, dim))
    return x / length.maximum(SHORTEST).unsqueeze(1)


def pool(x: Value, ids: Value, lengths: Value, ways: tuple[str, ...]) -> Value:
    """Return vectors [batch, len(ways) * dim] of tokens x [batch, source, dim], of padded ``ids``
    [batch, source].
    """
    pooled = [POOLING[way](x, ids, lengths) for way in ways]
    return pooled[0] if len(pooled) == 1 else x.graph.op.Concat(*pooled, axis=-1)


def _sum(x: Value, ids: Value, lengths: Value) -> Value:
    return context_of(is_real(ids, lengths).cast(x.dtype), x)


def _mean(x: Value, ids: Value, lengths: Value) -> Value:
    return _sum(x, ids, lengths) / lengths.cast(x.dtype).unsqueeze(1)


def _mean_sqrt_length(x: Value, ids: Value, lengths: Value) -> Value:
    return _sum(x, ids, lengths) / x.graph.op.Sqrt(lengths.cast(x.dtype)).unsqueeze(1)


def _max(x: Value, ids: Value, lengths: Value) -> Value:
    real = x.cast("float32").where(is_real(ids, lengths).unsqueeze(2), LOWEST)
    return real.max(1, keepdims=False).cast(x.dtype)


def _last(x: Value, ids: Value, lengths: Value) -> Value:
    return x.graph.op.GatherND(x, (lengths - 1).cast("int64").unsqueeze(1), batch_dims=1)


POOLING: dict[str, Callable[[Value, Value, Value], Value]] = {
    "cls": lambda x, ids, lengths: x[:, 0],
    "last": _last,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_length": _mean_sqrt_length,
}

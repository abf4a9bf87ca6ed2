"""Attends as Bahdanau et al. 2015 do (A.1.2), additively, over padded rows."""

from export.graph.value import Value
from export.layers.basic import Layers


def additive_scores(layers: Layers, query: Value, keys: Value, name: str, dim: int) -> Value:
    """Score v . tanh(query [batch, dim] + keys [batch, length, dim]): f32 [batch, length]."""
    score = layers.weights.take(f"{name}.weight", 1, dim)
    weight = layers.float_weight(f"{name}.weight", score[0])
    return layers.dot((query.unsqueeze(1) + keys).tanh(), weight, dim)


def context_of(weights: Value, values: Value) -> Value:
    """Sum values [batch, length, dim] by weights [batch, length], zero beyond a row's end: [batch,
    dim]. MatMul adds padding as zeros at the end of its sums.
    """
    return (weights.cast(values.dtype).unsqueeze(1) @ values).squeeze(1)

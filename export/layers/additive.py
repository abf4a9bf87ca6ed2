"""Additive attention (Bahdanau et al. 2015, A.1.2) in graphs, over padded rows."""

from export.graph.writer import Value, element_type
from export.layers.basic import Layers


def additive_scores(layers: Layers, query: Value, keys: Value, name: str, dim: int) -> Value:
    """v . tanh(query [batch, dim] + keys [batch, length, dim]): f32 [batch, length]."""
    graph, op = layers.graph, layers.graph.op
    score = layers.weights.take(f"{name}.weight", 1, dim)
    weight = layers.float_weight(f"{name}.weight", score[0])
    hidden = op.Tanh(op.Add(op.Unsqueeze(query, graph.ints(1)), keys))
    scores = layers.sum_features(op.Mul(hidden, weight), dim)
    return scores if layers.dtype == "float32" else op.Cast(scores, to=1)


def mix(layers: Layers, weights: Value, values: Value) -> Value:
    """Weights [batch, length], zero beyond a row's end, of values [batch, length, dim]:
    [batch, dim]. MatMul adds padding as zeros at the end of its sums.
    """
    graph, op = layers.graph, layers.graph.op
    if layers.dtype != "float32":
        weights = op.Cast(weights, to=element_type(layers.dtype))
    return op.Squeeze(op.MatMul(op.Unsqueeze(weights, graph.ints(1)), values), graph.ints(1))

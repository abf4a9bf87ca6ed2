"""Mixtures of experts in the graph (Shazeer et al. 2017).

Each expert computes on the tokens that use it, in a branch that is left out if there are none, so
that only the weights of experts in use are read. ONNX Runtime's MoE and QMoE do the same in one
node, but on CPUs what they return for a token depends on how many others use its expert, by the
last bits in fp32 and by far more in int8 and int4 (loadtest/LOG.md). Linear layers here do not.
"""

from functools import partial

import numpy as np

from export.graph.writer import Value
from export.layers.basic import Layers, feed_forward
from models.configs.transformer import Experts


def mixture_of_experts(
    layers: Layers, x: Value, name: str, d_model: int, config: Experts, activation: str
) -> Value:
    """Return the weighted sum of experts for every token of x [batch, tokens, d_model]. Raises
    ValueError for CUDA, where the graph would wait for the host at each expert.
    """
    if layers.target.is_cuda:
        raise ValueError("mixtures of experts run on CPUs: export them in fp32, int8 or int4")
    graph, op = layers.graph, layers.op
    tokens = x.reshape(-1, d_model)
    scores, shared_score = _scores(layers, tokens, name, d_model, config)
    shares = _shares(layers, scores, config)
    total = op.ConstantOfShape(op.Shape(tokens))
    for number, share in enumerate(graph.split(shares, [1] * config.num_experts)):
        rows = op.NonZero(share.reshape(-1)).reshape(-1)
        one = _Expert(layers, f"{name}.experts.{number}", d_model, config, activation)
        then = partial(one.add, total, tokens, share, rows)
        is_used = op.Size(rows) > 0
        [total] = graph.branch(is_used, x.dtype, then, partial(_unchanged, total), 1)
    if shared_score is not None and config.shared_ffn_dim is not None:
        dims = (d_model, config.shared_ffn_dim)
        shared = feed_forward(
            layers, tokens, f"{name}.shared", dims, activation, is_gated=True, bias=False
        )
        total = total + shared_score.sigmoid() * shared
    return op.Reshape(total, op.Shape(x))


class _Expert:
    """One feed-forward network."""

    def __init__(
        self, layers: Layers, name: str, d_model: int, config: Experts, activation: str
    ) -> None:
        self._layers, self._name, self._config = layers, name, config
        self._dims, self._activation = (d_model, config.ffn_dim), activation

    def add(self, total: Value, tokens: Value, share: Value, rows: Value) -> list[Value]:
        """Return the total [tokens, d_model] with what the expert adds to ``rows`` of it."""
        op = self._layers.op
        given, weights = op.Gather(tokens, rows), op.Gather(share, rows)
        found = feed_forward(
            self._layers,
            given,
            self._name,
            self._dims,
            self._activation,
            is_gated=True,
            bias=self._config.bias,
            limits=self._config.limits,
        )
        return [op.ScatterND(total, rows.unsqueeze(1), found * weights, reduction="add")]


def _unchanged(total: Value) -> list[Value]:
    return [total.graph.op.Identity(total)]


def _scores(
    layers: Layers, tokens: Value, name: str, d_model: int, config: Experts
) -> tuple[Value, Value | None]:
    """Return the scores of all experts, f32 [tokens, experts], and that of the shared network,
    [tokens, 1], if there is one: in floats in every precision, as rounding would choose other
    experts. They are one product, as one of a single column has other bits in other batches.
    """
    number, has_shared = config.num_experts, config.shared_ffn_dim is not None
    router = layers.weights.take(f"{name}.router.weight", number, d_model)
    if has_shared:
        router = np.concatenate(
            [router, layers.weights.take(f"{name}.shared_gate.weight", 1, d_model)]
        )
    scores = tokens @ layers.float_weight(f"{name}.router.weight", router.T)
    shared = None
    if has_shared:
        scores, shared = layers.graph.split(scores, [number, 1])
    if config.bias:
        bias = layers.weights.take(f"{name}.router.bias", number)
        scores = scores + layers.float_weight(f"{name}.router.bias", bias)
    return scores, shared


def _shares(layers: Layers, scores: Value, config: Experts) -> Value:
    """Return the weights of all experts f32 [tokens, experts]; 0 of those not used."""
    op = layers.op
    ranked = scores if config.normalised else op.Softmax(scores, axis=-1)
    best, numbers = op.TopK(ranked, layers.graph.ints(config.num_used), axis=-1, _outputs=2)
    if config.normalised:  # as if the softmax of all were divided by the sum of those used
        best = op.Softmax(best, axis=-1)
    return op.ScatterElements(ranked * 0, numbers, best, axis=-1)

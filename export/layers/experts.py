"""Mixtures of experts in the graph (Shazeer et al. 2017).

Each expert computes on the tokens that use it, in a branch that is left out if there are none, so
that only the weights of experts in use are read. ONNX Runtime's MoE and QMoE do the same in one
node, but on CPUs what they return for a token depends on how many others use its expert, by the
last bits in fp32 and by far more in int8 and int4 (loadtest/LOG.md). Linear layers here do not.
"""

from functools import partial

import numpy as np

from export.graph.writer import Value
from export.layers.attention import LOWEST
from export.layers.basic import Layers, feed_forward
from models.configs.transformer import ExpertGroups, Experts
from models.errors import InputError


def mixture_of_experts(
    layers: Layers, x: Value, name: str, d_model: int, config: Experts, activation: str
) -> Value:
    """Return the weighted sum of experts for every token of x [batch, tokens, d_model]. Raises
    InputError for CUDA, where the graph would wait for the host at each expert.
    """
    if layers.target.is_cuda:
        raise InputError("mixtures of experts run on CPUs: export them in fp32, int8 or int4")
    graph, op = layers.graph, layers.op
    tokens = x.reshape(-1, d_model)
    scores, shared_score = _scores(layers, tokens, name, d_model, config)
    shares = _shares(layers, scores, name, config)
    total = op.ConstantOfShape(op.Shape(tokens))
    for number, share in enumerate(graph.split(shares, [1] * config.num_experts)):
        rows = op.NonZero(share.reshape(-1)).reshape(-1)
        one = _Expert(layers, f"{name}.experts.{number}", d_model, config, activation)
        then = partial(one.add, total, tokens, share, rows)
        is_used = op.Size(rows) > 0
        [total] = graph.branch(is_used, x.dtype, then, partial(_keep_total, total), 1)
    if config.shared_ffn_dim is not None:
        dims = (d_model, config.shared_ffn_dim)
        shared = feed_forward(
            layers, tokens, f"{name}.shared", dims, activation, is_gated=True, bias=False
        )
        total = total + (shared if shared_score is None else shared_score.sigmoid() * shared)
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
        expert_input, weights = op.Gather(tokens, rows), op.Gather(share, rows)
        expert_output = feed_forward(
            self._layers,
            expert_input,
            self._name,
            self._dims,
            self._activation,
            is_gated=True,
            bias=self._config.bias,
            limits=self._config.limits,
        )
        return [op.ScatterND(total, rows.unsqueeze(1), expert_output * weights, reduction="add")]


def _keep_total(total: Value) -> list[Value]:
    return [total.graph.op.Identity(total)]


def _scores(
    layers: Layers, tokens: Value, name: str, d_model: int, config: Experts
) -> tuple[Value, Value | None]:
    """Return the scores of all experts, f32 [tokens, experts], and that of the shared network,
    [tokens, 1], if it has one: in floats in every precision, as rounding would choose other
    experts. They are one product, as one of a single column has other bits in other batches.
    """
    number, has_gate = config.num_experts, config.has_shared_gate
    router = layers.weights.take(f"{name}.router.weight", number, d_model)
    if has_gate:
        router = np.concatenate(
            [router, layers.weights.take(f"{name}.shared_gate.weight", 1, d_model)]
        )
    scores = tokens @ layers.float_weight(f"{name}.router.weight", router.T)
    shared = None
    if has_gate:
        scores, shared = layers.graph.split(scores, [number, 1])
    if config.bias:
        bias = layers.weights.take(f"{name}.router.bias", number)
        scores = scores + layers.float_weight(f"{name}.router.bias", bias)
    return scores, shared


def _shares(layers: Layers, scores: Value, name: str, config: Experts) -> Value:
    """Return the weights of all experts f32 [tokens, experts]; 0 of those not used."""
    op = layers.op
    is_plain = config.weighting == "softmax" and not (config.selection_bias or config.groups)
    is_softmax_of_best = is_plain and config.normalised
    if config.weighting == "sigmoid":
        shares = scores.sigmoid()
    else:  # the softmax of the best scores is that of all, divided by the sum of the best
        shares = scores if is_softmax_of_best else op.Softmax(scores, axis=-1)
    ranked = shares
    if config.selection_bias:
        bias = layers.weights.take(f"{name}.selection_bias", config.num_experts)
        ranked = ranked + layers.float_weight(f"{name}.selection_bias", bias)
    if config.groups is not None:
        ranked = _within_best_groups(layers, ranked, config.groups)
    _, numbers = op.TopK(ranked, layers.graph.ints(config.num_used), axis=-1, _outputs=2)
    best = op.GatherElements(shares, numbers, axis=-1)
    if is_softmax_of_best:
        best = op.Softmax(best, axis=-1)
    elif config.normalised:
        ones = layers.graph.constant(1, "float32")
        best = best / layers.dot(best, ones, config.num_used).unsqueeze(-1)
    best = best if config.scale == 1.0 else best * config.scale
    return op.ScatterElements(scores * 0, numbers, best, axis=-1)


def _within_best_groups(layers: Layers, ranked: Value, groups: ExpertGroups) -> Value:
    """Return the scores f32 [tokens, experts] of the groups that may be used; others are lowest."""
    op, graph = layers.op, layers.graph
    by_group = op.Reshape(ranked, graph.ints(0, groups.number, -1))
    best, _ = op.TopK(by_group, graph.ints(groups.num_summed), axis=-1, _outputs=2)
    first, *others = graph.split(best, [1] * groups.num_summed)
    sums = sum(others, first).squeeze(-1)
    _, used = op.TopK(sums, graph.ints(groups.num_used), axis=-1, _outputs=2)
    ones = op.GatherElements(sums, used, axis=-1) * 0 + 1
    is_used = op.ScatterElements(sums * 0, used, ones, axis=-1)
    within = by_group.where(is_used.unsqueeze(-1) > 0, LOWEST)
    return op.Reshape(within, op.Shape(ranked))

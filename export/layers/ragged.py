"""Rows of unlike length: masks, softmax and sums within a row, and encoders that leave padding out.

A row's bits must depend neither on the other rows nor on how far it is padded.
"""

from abc import ABC, abstractmethod

from export.graph.model import Target
from export.graph.value import Value
from export.layers.basic import Layers

LOWEST = -1e30  # score of positions beyond a row's end


def count(like: Value) -> Value:
    """Count 1, 2, 3, ... along the rows of ``like`` [batch, length]: int32.

    By a running sum: a Range would be made on the CPU, which a CUDA session refuses.
    """
    op, graph = like.graph.op, like.graph
    ones = op.Equal(like, like).cast("int32")
    return op.CumSum(ones, graph.constant(1, "int64"))


def places(like: Value) -> Value:
    """Count 0, 1, 2, ... along the rows of ``like`` [batch, length]: int32."""
    return count(like) - 1


def lengthened(x: Value, more: Value) -> Value:
    """Put zeros, as many as ``more`` [1] int64, behind x [batch, length]."""
    graph = x.graph
    pads = graph.op.Concat(graph.ints(0, 0, 0), more, axis=0)
    return graph.op.Pad(x, pads, graph.constant(0, x.dtype))


def is_real(like: Value, lengths: Value) -> Value:
    """Return which positions of ``like`` [batch, length] lie within their rows: [batch, length]."""
    return count(like) <= lengths.unsqueeze(1)


def ragged_softmax(scores: Value, lengths: Value) -> Value:
    """Take the softmax of f32 scores [batch, length] over each row's own length; 0 beyond."""
    return softmax_within(scores, is_real(scores, lengths))


def hardened(weights: Value) -> Value:
    """Give f32 weights [batch, length] to the position that has most, to the first of two."""
    best = weights.graph.op.ArgMax(weights, axis=1, keepdims=1)
    return weights.graph.op.Equal(places(weights), best.cast("int32")).cast("float32")


def softmax_within(scores: Value, within: Value) -> Value:
    """Take the softmax over the last axis of f32 ``scores``, where ``within``; exactly 0 elsewhere.

    It must not depend on how far the rows are padded: CumSum adds one position after the other.
    """
    graph = scores.graph
    scores = scores.where(within, LOWEST)
    likelihood = (scores - scores.max(-1, keepdims=True)).exp().where(within, 0)
    running = graph.op.CumSum(likelihood, graph.constant(-1, "int64"))
    return likelihood / running.max(-1, keepdims=True)


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


class SourceTokens(ABC):
    """Holds, of sources [batch, source], ``ids`` and, from 0 on, int32 ``positions``."""

    ids: Value
    positions: Value

    @abstractmethod
    def of_each(self, x: Value) -> Value:
        """Take the tokens' from [batch, source] of anything."""

    @abstractmethod
    def spread(self, x: Value) -> Value:
        """Spread vectors of the tokens: [batch, source, dim]; padding has its own row's numbers."""

    @abstractmethod
    def pack(self, x: Value) -> Value:
        """Take vectors of the tokens from [batch, source, dim]."""


def source_tokens(ids: Value, lengths: Value, target: Target) -> SourceTokens:
    """Pick those that an encoder for ``target`` computes on."""
    return PaddedTokens(ids) if target.is_cuda else PackedTokens(ids, lengths)


class PaddedTokens(SourceTokens):
    """Takes all of them; vectors are [batch, source, dim]."""

    def __init__(self, ids: Value) -> None:
        self.ids = ids
        self.positions = places(ids)

    def of_each(self, x: Value) -> Value:
        return x

    def spread(self, x: Value) -> Value:
        return x

    def pack(self, x: Value) -> Value:
        return x


class PackedTokens(SourceTokens):
    """Takes the real ones, row after row; vectors are [tokens, dim]."""

    def __init__(self, ids: Value, lengths: Value) -> None:
        graph = ids.graph
        self._op, flat = graph.op, graph.ints(-1)
        op = self._op
        within = op.Reshape(is_real(ids, lengths), flat).cast("int32")
        last = op.CumSum(within, graph.constant(0, "int64")) - 1
        self._token_at = op.Reshape(last, op.Shape(ids))  # padding: the row's last
        self._place_of = op.Reshape(op.NonZero(within), flat)
        self.ids = self.of_each(ids)
        self.positions = self.of_each(places(ids))

    def of_each(self, x: Value) -> Value:
        return self._op.Gather(x.reshape(-1), self._place_of)

    def spread(self, x: Value) -> Value:
        return self._op.Gather(x, self._token_at)

    def pack(self, x: Value) -> Value:
        return self._op.Gather(self._op.Flatten(x, axis=2), self._place_of)

"""Rows of unlike length: masks, softmax and sums within a row, and encoders that leave padding out.

A row's bits must depend neither on the other rows nor on how far it is padded.
"""

from export.graph.model import Target
from export.graph.value import Value
from export.layers.basic import Layers

LOWEST = -1e30  # score of positions beyond a row's end


def positions_from_one(like: Value) -> Value:
    """Return 1, 2, 3, ... along the rows of ``like`` [batch, length]: int32.

    This is a running sum, as a Range would be made on the CPU, which a CUDA session refuses.
    """
    op, graph = like.graph.op, like.graph
    ones = op.Equal(like, like).cast("int32")
    return op.CumSum(ones, graph.constant(1, "int64"))


def positions_from_zero(like: Value) -> Value:
    """Return 0, 1, 2, ... along the rows of ``like`` [batch, length]: int32."""
    return positions_from_one(like) - 1


def padded_by(x: Value, more: Value) -> Value:
    """Return x [batch, length] with ``more`` [1] int64 zeros after each row."""
    graph = x.graph
    pads = graph.op.Concat(graph.ints(0, 0, 0), more, axis=0)
    return graph.op.Pad(x, pads, graph.constant(0, x.dtype))


def is_real(like: Value, lengths: Value) -> Value:
    """Return which positions of ``like`` [batch, length] lie within their rows: [batch, length]."""
    return positions_from_one(like) <= lengths.unsqueeze(1)


def ragged_softmax(scores: Value, lengths: Value) -> Value:
    """Return the softmax of f32 scores [batch, length] over each row's own length; 0 beyond."""
    return softmax_within(scores, is_real(scores, lengths))


def one_hot_of_largest(weights: Value) -> Value:
    """Return 1 at the largest of f32 weights [batch, length] and 0 elsewhere; of equals the
    first.
    """
    best = weights.graph.op.ArgMax(weights, axis=1, keepdims=1)
    return weights.graph.op.Equal(positions_from_zero(weights), best.cast("int32")).cast("float32")


def softmax_within(scores: Value, within: Value) -> Value:
    """Return the softmax over the last axis of f32 ``scores``, where ``within``; exactly 0
    elsewhere.

    It must not depend on how far the rows are padded: CumSum adds one position after the other.
    """
    graph = scores.graph
    scores = scores.where(within, LOWEST)
    likelihood = (scores - scores.max(-1, keepdims=True)).exp().where(within, 0)
    running = graph.op.CumSum(likelihood, graph.constant(-1, "int64"))
    return likelihood / running.max(-1, keepdims=True)


def additive_scores(layers: Layers, query: Value, keys: Value, name: str, dim: int) -> Value:
    """Return v . tanh(query [batch, dim] + keys [batch, length, dim]): f32 [batch, length]."""
    score = layers.weights.take(f"{name}.weight", 1, dim)
    weight = layers.float_weight(f"{name}.weight", score[0])
    return layers.dot((query.unsqueeze(1) + keys).tanh(), weight, dim)


def context_of(weights: Value, values: Value) -> Value:
    """Return the sum [batch, dim] of values [batch, length, dim] by weights [batch, length], which
    are zero beyond a row's end. MatMul adds padding as zeros at the end of its sums.
    """
    return (weights.cast(values.dtype).unsqueeze(1) @ values).squeeze(1)


class SourceTokens:
    """The tokens of padded sources that an encoder computes on, with int32 ``positions`` from 0.

    Linear layers, norms and residual sums compute on each token alone, so they can leave padding
    out. Only attention needs whole rows. On a CPU vectors of the real tokens are packed row after
    row, [tokens, dim]. CUDA's graphs have fixed shapes and keep padding: [batch, source, dim].
    """

    def __init__(self, ids: Value, lengths: Value, target: Target) -> None:
        self._op, self._is_packed = ids.graph.op, not target.is_cuda
        if self._is_packed:
            op, graph, flat = self._op, ids.graph, ids.graph.ints(-1)
            within = op.Reshape(is_real(ids, lengths), flat).cast("int32")
            last = op.CumSum(within, graph.constant(0, "int64")) - 1
            self._token_at = op.Reshape(last, op.Shape(ids))  # of padding: the row's last token
            self._place_of = op.Reshape(op.NonZero(within), flat)
        self.ids = self.of_each(ids)
        self.positions = self.of_each(positions_from_zero(ids))

    def of_each(self, x: Value) -> Value:
        """Return the tokens' values of x [batch, source]."""
        return self._op.Gather(x.reshape(-1), self._place_of) if self._is_packed else x

    def spread(self, x: Value) -> Value:
        """Return rows [batch, source, dim] of the tokens' vectors; padding repeats numbers of its
        own row.
        """
        return self._op.Gather(x, self._token_at) if self._is_packed else x

    def pack(self, x: Value) -> Value:
        """Return the tokens' vectors of rows [batch, source, dim]."""
        if not self._is_packed:
            return x
        return self._op.Gather(self._op.Flatten(x, axis=2), self._place_of)

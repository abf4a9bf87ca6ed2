"""Tells what is real of rows that are padded to the longest, and sums over no more.

A row's bits must depend neither on the other rows nor on how far it is padded.
"""

from export.graph.value import Value

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
    """Tell which positions of ``like`` [batch, length] lie within their rows: [batch, length]."""
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

"""Makes one vector of those of a text's tokens, as `models.layers.encoders.pooling` does.

What a row sums must not depend on how far it is padded: a product with weights does, which are zero
beyond a row's end.
"""

from collections.abc import Callable

from export.graph.value import Value
from export.layers.additive import context_of
from export.layers.ragged import LOWEST, is_real


def pool(x: Value, ids: Value, lengths: Value, ways: tuple[str, ...]) -> Value:
    """Pool x [batch, source, dim] of padded texts ``ids`` [batch, source]: [batch, len(ways) *
    dim].
    """
    found = [POOLING[way](x, ids, lengths) for way in ways]
    return found[0] if len(found) == 1 else x.graph.op.Concat(*found, axis=-1)


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

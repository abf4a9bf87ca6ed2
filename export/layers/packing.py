"""Which tokens of padded sources an encoder computes on: the real ones side by side, or all.

Linear layers, norms and residual sums see tokens one by one, so they can leave padding out; only
what mixes tokens, attention, gets the rows apart. CUDA's graphs keep fixed shapes, and padding.
"""

from abc import ABC, abstractmethod

from export.graph.writer import GraphWriter, Value
from export.layers.attention import is_real, places


class SourceTokens(ABC):
    """Of sources [batch, source]: ``ids`` and, from 0 on, int32 ``positions`` of the tokens."""

    ids: Value
    positions: Value

    @abstractmethod
    def spread(self, x: Value) -> Value:
        """Vectors of the tokens -> [batch, source, dim]; padding has numbers of its own row."""

    @abstractmethod
    def pack(self, x: Value) -> Value:
        """[batch, source, dim] -> vectors of the tokens."""


def source_tokens(graph: GraphWriter, ids: Value, lengths: Value, dtype: str) -> SourceTokens:
    """Those that an encoder in ``dtype`` computes on."""
    if dtype == "float32":
        return PackedTokens(graph, ids, lengths)
    return PaddedTokens(graph, ids)


class PaddedTokens(SourceTokens):
    """All of them; vectors are [batch, source, dim]."""

    def __init__(self, graph: GraphWriter, ids: Value) -> None:
        self.ids = ids
        self.positions = places(graph, ids)

    def spread(self, x: Value) -> Value:
        return x

    def pack(self, x: Value) -> Value:
        return x


class PackedTokens(SourceTokens):
    """The real ones, row after row; vectors are [tokens, dim]."""

    def __init__(self, graph: GraphWriter, ids: Value, lengths: Value) -> None:
        op, flat = graph.op, graph.ints(-1)
        self._op = op
        within = op.Cast(op.Reshape(is_real(graph, ids, lengths), flat), to=6)
        so_far = op.CumSum(within, graph.constant(0, "int64"))
        last = op.Sub(so_far, graph.constant(1, "int32"))
        self._token_at = op.Reshape(last, op.Shape(ids))  # padding: the row's last
        self._place_of = op.Reshape(op.NonZero(within), flat)
        self.ids = op.Gather(op.Reshape(ids, flat), self._place_of)
        self.positions = op.Gather(op.Reshape(places(graph, ids), flat), self._place_of)

    def spread(self, x: Value) -> Value:
        return self._op.Gather(x, self._token_at)

    def pack(self, x: Value) -> Value:
        return self._op.Gather(self._op.Flatten(x, axis=2), self._place_of)

"""Picks the tokens of padded sources that an encoder computes on: the real ones, or all.

Linear layers, norms and residual sums see tokens one by one, so they can leave padding out; only
what mixes tokens, attention, gets the rows apart. CUDA's graphs keep fixed shapes, and padding.
"""

from abc import ABC, abstractmethod

from export.graph.target import Target
from export.graph.value import Value
from export.layers.ragged import is_real, places


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

"""Attention by one query at a time: additive (Bahdanau et al. 2015, A.1.2) or by dot products.

A tape is (keys [batch, length, attention_dim], values [batch, length, value_dim]): what a recurrent
network has written at every position so far. Reading a tape without positions gives zeros.
"""

import math

import torch
from torch import Tensor, nn

Tape = tuple[Tensor, Tensor]


class DotAttention(nn.Module):
    """Scores e_j = query . U h_j, and sums values weighted by softmax(e).

    query_dim: input size of the layer `query`; None: the caller makes queries. bias: of U.
    is_hard: outside training all of the weight goes to the position that has most.
    """

    def __init__(
        self,
        hidden_dim: int,
        attention_dim: int,
        query_dim: int | None = None,
        *,
        bias: bool,
        is_hard: bool = False,
    ) -> None:
        super().__init__()
        self.is_hard = is_hard
        if query_dim is not None:
            self.query = nn.Linear(query_dim, attention_dim, bias=False)
        self.key = nn.Linear(hidden_dim, attention_dim, bias=bias)

    def forward(
        self, query: Tensor, tape: Tape, is_written: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend with a query [batch, attention_dim] to a tape, where the mask [batch, length] is
        true. Return the context [batch, value_dim] and the weights [batch, length].
        """
        keys, values = tape
        scores = self.scores(query, keys)
        if is_written is not None:
            scores = scores.masked_fill(~is_written, float("-inf"))
        weights = scores.softmax(-1)
        if self.is_hard and not self.training:
            weights = one_hot_of_largest(weights)
        return torch.bmm(weights[:, None].to(values.dtype), values)[:, 0], weights

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores [batch, length] of keys [batch, length, attention_dim]."""
        return torch.bmm(keys, query[:, :, None])[:, :, 0]

    def append(self, tape: Tape, hidden: Tensor, values: Tensor) -> Tape:
        """Return the tape with one more position: hidden [batch, hidden_dim], values [batch,
        value_dim].
        """
        keys, written = tape
        key = self.key(hidden)[:, None]
        return torch.cat([keys, key], 1), torch.cat([written, values[:, None]], 1)


class ScaledDotAttention(DotAttention):
    """Divides scores by sqrt(attention_dim) (Vaswani et al. 2017, 3.2.1)."""

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().scores(query, keys) / math.sqrt(query.shape[-1])


class AdditiveAttention(DotAttention):
    """Scores e_j = v^T tanh(query + U h_j)."""

    def __init__(
        self,
        hidden_dim: int,
        attention_dim: int,
        query_dim: int | None = None,
        *,
        bias: bool,
        is_hard: bool = False,
    ) -> None:
        super().__init__(hidden_dim, attention_dim, query_dim, bias=bias, is_hard=is_hard)
        self.score = nn.Linear(attention_dim, 1, bias=False)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.score(torch.tanh(query[:, None] + keys)).squeeze(-1)


ATTENTIONS: dict[str, type[DotAttention]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "scaled-dot": ScaledDotAttention,
}


def one_hot_of_largest(weights: Tensor) -> Tensor:
    """Return 1 at the largest weight of the last axis and 0 elsewhere; of equals the first."""
    best = weights.argmax(-1, keepdim=True)
    return torch.zeros_like(weights).scatter(-1, best, 1.0)


def empty_tape(like: Tensor, attention_dim: int, value_dim: int) -> Tape:
    """Return a tape without positions, with the rows and the type of `like` [batch, ...]."""
    rows = len(like)
    return like.new_zeros(rows, 0, attention_dim), like.new_zeros(rows, 0, value_dim)

"""Attends by a query and keys, additively (Bahdanau et al. 2015, A.1.2) or not, to tapes too.

A tape is (keys [batch, length, attention_dim], values [batch, length, value_dim]): what a recurrent
network has written at every position so far. A tape of no positions reads as zeros.
"""

import math

import torch
from torch import Tensor, nn

Tape = tuple[Tensor, Tensor]


class DotAttention(nn.Module):
    """Scores e_j = query . U h_j, and sums values weighted by softmax(e).

    query_dim: of what `query` maps, if the caller does not make queries himself. bias: of U.
    is_hard: once trained, it sums nothing but the value of the largest weight.
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
        """Attend with a query [batch, attention_dim] to what is written, all or where a mask
        [batch, length] says so: the context [batch, value_dim], and the weights [batch, length].
        """
        keys, values = tape
        scores = self.scores(query, keys)
        if is_written is not None:
            scores = scores.masked_fill(~is_written, float("-inf"))
        weights = scores.softmax(-1)
        if self.is_hard and not self.training:
            weights = hardened(weights)
        return torch.bmm(weights[:, None].to(values.dtype), values)[:, 0], weights

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score keys [batch, length, attention_dim] by a query [batch, attention_dim]: [batch,
        length].
        """
        return torch.bmm(keys, query[:, :, None])[:, :, 0]

    def append(self, tape: Tape, hidden: Tensor, values: Tensor) -> Tape:
        """Write one position: hidden [batch, hidden_dim], values [batch, value_dim]."""
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


def hardened(weights: Tensor) -> Tensor:
    """Give all of the weight to the position, the last axis, that has most; to the first of two."""
    best = weights.argmax(-1, keepdim=True)
    return torch.zeros_like(weights).scatter(-1, best, 1.0)


def empty_tape(like: Tensor, attention_dim: int, value_dim: int) -> Tape:
    """Return one of no positions, with the rows and the type of `like` [batch, ...]."""
    rows = len(like)
    return like.new_zeros(rows, 0, attention_dim), like.new_zeros(rows, 0, value_dim)

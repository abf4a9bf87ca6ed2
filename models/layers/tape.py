"""Tapes: what a recurrent network has written at every position so far, and how it is read.

A tape is (keys [batch, length, attention_dim], values [batch, length, value_dim]). Keys are what
additive attention makes of the hidden states, computed once, when they are written. A tape of no
positions reads as zeros.
"""

import torch
from torch import Tensor, nn

Tape = tuple[Tensor, Tensor]


class TapeAttention(nn.Module):
    """Scores a_i = v^T tanh(W_h h_i + query).

    That is Cheng et al. 2016, equation 4, as in Bahdanau et al. 2015. The query is what the caller
    adds up: W_x x_t + W_h~ h~_{t-1} there, W_s s_{t-1} here.
    """

    def __init__(self, hidden_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(hidden_dim, attention_dim, bias=False)
        self.score = nn.Linear(attention_dim, 1, bias=False)

    def append(self, tape: Tape, hidden: Tensor, values: Tensor) -> Tape:
        """Write one position: hidden [batch, hidden_dim], values [batch, value_dim]."""
        keys, written = tape
        key = self.key(hidden)[:, None]
        return torch.cat([keys, key], 1), torch.cat([written, values[:, None]], 1)

    def read(
        self, query: Tensor, tape: Tape, is_written: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend with a query [batch, attention_dim] to what is written, all or where a mask
        [batch, length] says so: the context [batch, value_dim], and the weights [batch, length].
        """
        keys, values = tape
        energy = self.score(torch.tanh(query[:, None] + keys)).squeeze(-1)
        if is_written is not None:
            energy = energy.masked_fill(~is_written, float("-inf"))
        weights = energy.softmax(-1)
        return torch.bmm(weights[:, None].to(values.dtype), values)[:, 0], weights


def empty_tape(like: Tensor, attention_dim: int, value_dim: int) -> Tape:
    """Return one of no positions, with the rows and the type of `like` [batch, ...]."""
    rows = len(like)
    return like.new_zeros(rows, 0, attention_dim), like.new_zeros(rows, 0, value_dim)

"""Sums a decoder's hidden state, the word it read and its context up, before the output.

t~ = U s_i + V E y_{i-1} + C c_i (Cho et al. 2014, A.1.2; Bahdanau et al. 2015, A.2.2, where it is
s_{i-1}; here s_i as in their equation 4).
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn


class Readout(nn.Module, ABC):
    """Computes the sum t~; `width` numbers of it make one of the readout."""

    width: ClassVar[int]

    def __init__(
        self, hidden_dim: int, embedding_dim: int, context_dim: int, readout_dim: int
    ) -> None:
        super().__init__()
        self.state = nn.Linear(hidden_dim, self.width * readout_dim)
        self.embedding = nn.Linear(embedding_dim, self.width * readout_dim, bias=False)
        self.context = nn.Linear(context_dim, self.width * readout_dim, bias=False)

    def forward(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Read out, each [..., its dimension] -> [..., readout_dim]."""
        total = self.state(hidden) + self.embedding(embedded) + self.context(context)
        return self.activate(total)

    @abstractmethod
    def activate(self, total: Tensor) -> Tensor:
        """Turn t~ [..., width * readout_dim] into the readout [..., readout_dim]."""


class MaxoutReadout(Readout):
    """Takes the larger of each pair of t~ (Goodfellow et al. 2013)."""

    width = 2

    def activate(self, total: Tensor) -> Tensor:
        return total.unflatten(-1, (-1, 2)).amax(-1)


class TanhReadout(Readout):
    """Takes tanh(t~)."""

    width = 1

    def activate(self, total: Tensor) -> Tensor:
        return torch.tanh(total)


READOUTS: dict[str, type[Readout]] = {"maxout": MaxoutReadout, "tanh": TanhReadout}

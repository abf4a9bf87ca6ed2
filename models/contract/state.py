"""Holds what a model carries from token to token: a frozen dataclass for each family."""

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from models.batch import Tensors


@dataclass(frozen=True)
class State(Tensors):
    """Has tensors whose first axis is the batch, and what all rows share: numbers, and None for
    what there is not yet.
    """

    def select(self, rows: Tensor) -> Self:
        """Take these rows of every tensor, in this order; a row may come more than once."""
        return self.each(lambda x: x[rows])

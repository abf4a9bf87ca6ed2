"""Weights of linear layers, read when the first graph of a bundle needs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from export.graph.writer import Array


@dataclass(frozen=True)
class Matrix:
    """The weight [out, in] of a linear layer.

    is_shared: whether its name means the same weight in all graphs of a bundle, so that what is
        made of it once serves them all.
    """

    shape: tuple[int, ...]
    read: Callable[[], Array]
    is_shared: bool = True

    @classmethod
    def of_array(cls, array: Array) -> Self:
        """Return a matrix that one graph made of other weights."""
        return cls(array.shape, lambda: array, is_shared=False)

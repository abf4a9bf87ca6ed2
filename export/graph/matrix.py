"""Weights of linear layers, read when the first graph of a bundle needs them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from export.graph.writer import Array
from models.safetensors import QuantisedBlocks

Part = Array | QuantisedBlocks


@dataclass(frozen=True)
class Matrix:
    """The weight [out, in] of a linear layer.

    read_parts: returns the weights that it consists of, one below the other: in blocks, if their
        source holds them so.
    is_shared: whether its name means the same weight in all graphs of a bundle, so that what is
        made of it once serves them all.
    """

    shape: tuple[int, int]
    read_parts: Callable[[], Sequence[Part]]
    is_shared: bool = True

    @classmethod
    def of_array(cls, array: Array) -> Self:
        """Return a matrix that one graph made of other weights."""
        out_dim, in_dim = array.shape
        return cls((out_dim, in_dim), lambda: [array], is_shared=False)

    def read(self) -> Array:
        """Return the whole weight as fp32."""
        return join(
            [
                part.read() if isinstance(part, QuantisedBlocks) else part
                for part in self.read_parts()
            ]
        )

    def read_columns(self, columns: Array) -> Array:
        """Return some columns as fp32 [out, columns]."""
        return join(
            [
                part.read_columns(columns)
                if isinstance(part, QuantisedBlocks)
                else part[:, columns]
                for part in self.read_parts()
            ]
        )


def join(parts: Sequence[Array]) -> Array:
    """Put arrays below each other. A single one is not copied."""
    return np.concatenate(parts) if len(parts) > 1 else parts[0]

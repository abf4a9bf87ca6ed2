"""Says what part each parameter plays: how it begins and is learned follows from it."""

from abc import ABC, abstractmethod
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Role(Enum):
    MATRIX = "matrix"  # maps vectors to vectors
    TABLE = "table"  # one row for each word or position
    VECTOR = "vector"  # biases, gains of norms, and maps from or to a single number


class ParameterRole(NamedTuple):
    """Has `num_blocks` matrices below each other in one parameter, as those of gates.

    rate: times the learning rate, it is learned at.
    """

    role: Role
    num_blocks: int = 1
    rate: float = 1.0


class ScoreMatrix(nn.Linear):
    """Is between two vectors whose product is a score, as Luong's W_a.

    A score sums what changes in all the components of a vector, so that it moves as many times as
    fast as one of them. Scores that grow large in a few steps leave a softmax that looks at one
    word, and no gradient to look elsewhere: hence a rate of 1 / sqrt(dim), the factor of scaled
    products (Vaswani et al. 2017, 3.2.1).
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__(in_dim, out_dim, bias=False)
        self.rate = out_dim**-0.5


class Blocks(nn.Module, ABC):
    """Is a module that says which of its parameters hold several matrices."""

    @abstractmethod
    def blocks(self) -> dict[str, int]:
        """Return how many, by the parameter's name in this module."""


def parts_of(module: nn.Module) -> dict[str, ParameterRole]:
    """Find every parameter's part, by name. `output` is the table of a module that is not tied."""
    blocks = {
        f"{prefix}.{name}".lstrip("."): count
        for prefix, each in module.named_modules()
        if isinstance(each, Blocks)
        for name, count in each.blocks().items()
    }
    linear = {f"{n}.weight": m for n, m in module.named_modules() if isinstance(m, nn.Linear)}
    rates = {name: layer.rate for name, layer in linear.items() if isinstance(layer, ScoreMatrix)}
    matrices = (linear.keys() | blocks.keys()) - {"output.weight"}
    return {
        name: _part(parameter, name in matrices, blocks.get(name, 1), rates.get(name, 1.0))
        for name, parameter in module.named_parameters()
    }


def _part(parameter: Tensor, is_matrix: bool, num_blocks: int, rate: float) -> ParameterRole:
    if parameter.dim() != 2 or 1 in parameter.shape:
        return ParameterRole(Role.VECTOR)
    return ParameterRole(Role.MATRIX, num_blocks, rate) if is_matrix else ParameterRole(Role.TABLE)


@torch.no_grad()
def initialise_blocks(weight: Tensor, num_blocks: int) -> None:
    """Draw each matrix in its own Xavier's range: several at once would all begin too small."""
    for block in weight.chunk(num_blocks):
        nn.init.xavier_uniform_(block)

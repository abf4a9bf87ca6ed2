"""The role of each parameter, which decides how it is initialised and trained."""

from abc import ABC, abstractmethod
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor, nn


class ParameterKind(Enum):
    MATRIX = "matrix"  # maps vectors to vectors
    TABLE = "table"  # one row for each word or position
    VECTOR = "vector"  # biases, gains of norms, and maps from or to a single number


class ParameterRole(NamedTuple):
    """A parameter's role. `num_blocks` matrices may lie below each other in it, as those of gates.

    rate: factor of its learning rate.
    """

    role: ParameterKind
    num_blocks: int = 1
    rate: float = 1.0


class ScoreMatrix(nn.Linear):
    """A matrix between two vectors whose product is a score, such as Luong's W_a.

    A score sums the changes of all components of a vector, so it moves as many times as fast as one
    of them. Scores that grow large in a few steps leave a softmax with one large weight, and no
    gradient for the others: hence a rate of 1 / sqrt(dim), the factor of scaled products (Vaswani
    et al. 2017, 3.2.1).
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__(in_dim, out_dim, bias=False)
        self.rate = out_dim**-0.5


class Blocks(nn.Module, ABC):
    """A module some of whose parameters hold several matrices."""

    @abstractmethod
    def blocks(self) -> dict[str, int]:
        """Return the number of matrices, by the parameter's name in this module."""


def parameter_roles(module: nn.Module) -> dict[str, ParameterRole]:
    """Return every parameter's role by name. `output` is the table of a module without tied
    embeddings.
    """
    blocks = {
        f"{prefix}.{name}".lstrip("."): count
        for prefix, child in module.named_modules()
        if isinstance(child, Blocks)
        for name, count in child.blocks().items()
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
        return ParameterRole(ParameterKind.VECTOR)
    return (
        ParameterRole(ParameterKind.MATRIX, num_blocks, rate)
        if is_matrix
        else ParameterRole(ParameterKind.TABLE)
    )


@torch.no_grad()
def initialise_blocks(weight: Tensor, num_blocks: int) -> None:
    """Draw each matrix in its own Xavier's range; in a common one all would be too small."""
    for block in weight.chunk(num_blocks):
        nn.init.xavier_uniform_(block)

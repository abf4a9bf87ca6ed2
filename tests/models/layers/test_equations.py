"""The equations that graphs are written by give, over torch's tensors, the modules' own bits."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from models.layers import cells, equations

DIM, ROWS = 8, 5


class Recurrence:
    """Multiplies by blocks of a weight, as torch's cells do."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias

    def times(self, hidden: Tensor, first: int, last: int) -> Tensor:
        rows = slice(first * DIM, last * DIM)
        return linear(hidden, self.weight[rows], self.bias[rows])

    def split(self, x: Tensor, *blocks: int) -> tuple[Tensor, ...]:
        return x.split([n * DIM for n in blocks], -1)


def test_both_know_the_same_cells() -> None:
    for name, cell in cells.CELLS.items():
        ours = equations.CELLS[name]
        assert ours.num_gates == cell.num_gates
        assert (ours.num_recurrent, ours.num_states) == (cell.num_recurrent, cell.num_states)
    assert cells.CELLS.keys() == equations.CELLS.keys()


@pytest.mark.parametrize("name", equations.CELLS)
def test_a_step_has_the_modules_bits(name: str) -> None:
    cell, random = equations.CELLS[name], torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, cell.num_gates * DIM, generator=random)
    weight = torch.randn(cell.num_recurrent * DIM, DIM, generator=random)
    bias = torch.randn(cell.num_recurrent * DIM, generator=random)
    state = tuple(torch.randn(ROWS, DIM, generator=random) for _ in range(cell.num_states))
    found = cell.step(x, state, Recurrence(weight, bias))
    expected = cells.CELLS[name].step(x, state, weight, bias)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))

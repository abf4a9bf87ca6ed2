"""Equations over torch's tensors: what their gradients are, and what they give by hand.

That cells give what plain loops give is in `tests.models.architectures.test_recurrent`, that graphs
give what torch gives in `tests.models.architectures`.
"""

import math

import pytest
import torch
from torch import Tensor

from models.layers.equations import CELLS, apply_gate, gaussian
from models.layers.recurrent import Readout, RecurrentCell, RecurrentWeight


@pytest.mark.parametrize("name", CELLS)
def test_gradients_through_a_sequence_are_those_of_differences(name: str) -> None:
    """Also where a step multiplies by parts of the recurrent weight."""
    torch.manual_seed(0)
    cell = RecurrentCell(name, 3, 4).double()
    x = torch.randn(2, 3, cell.cell.num_gates * 4).double()
    begin = cell.begin(torch.randn(2, 4).double())

    def run(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        recurrent, state, outputs = RecurrentWeight(weight, bias), begin, []
        for gates in x.unbind(1):
            state = cell.cell.step(gates, state, recurrent)
            outputs.append(state[0])
        return torch.stack(outputs)

    given = cell.hidden.weight, cell.hidden.bias, x.requires_grad_()
    assert torch.autograd.gradcheck(run, given)


def test_maxout_takes_the_larger_of_neighbours() -> None:
    readout = Readout("maxout", 4, 4, 4, readout_dim=2)
    for layer in (readout.embedding, readout.context):
        torch.nn.init.zeros_(layer.weight)
    torch.nn.init.eye_(readout.state.weight)
    torch.nn.init.zeros_(readout.state.bias)
    total, nothing = torch.tensor([[1.0, 3.0, 5.0, 2.0]]), torch.zeros(1, 4)
    assert readout(total, nothing, nothing).tolist() == [[3.0, 5.0]]


def test_a_gate_multiplies_what_is_fed_forward() -> None:
    first, up = torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 5.0])
    assert apply_gate(torch.relu, first).tolist() == [0.0, 2.0]
    assert apply_gate(torch.relu, first, up).tolist() == [0.0, 10.0]


def test_a_gaussian_falls_off_by_half_a_window() -> None:
    actual = gaussian(torch.tensor([0.0, 5.0, -10.0]), window=10)
    assert actual.tolist() == pytest.approx([1.0, math.exp(-0.5), math.exp(-2.0)])

"""Defines the recurrent cells, each as one step, and a cell that also reads a context.

A cell has no weights of its own: whoever runs it gives the input's part, which is known ahead of
time for whole sequences, and the recurrent weight. Both are stacks of [hidden_dim, ...] blocks,
for LSTM and GRU in torch's order.

- rnn: Elman 1990.
- lstm: Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000).
- gru: Cho et al. 2014, the reset gate after the recurrent product, as torch and ONNX have it.
- mut1, mut2, mut3: the three best that Jozefowicz, Zaremba and Sutskever 2015 found. Where x
  enters without a weight there (MUT1's tanh(x), MUT2's reset gate) it is projected here, as it may
  have another size than the hidden state. As elsewhere, the input's part and the recurrent part
  each have a bias. Their update gate lets the new value in; GRU's keeps the old one.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.layers.roles import Blocks, initialise_blocks

CellState = tuple[Tensor, ...]  # hidden [batch, hidden_dim]; LSTM: and memory cell, as large
CellStates = tuple[CellState, ...]  # of several layers


class Cell(ABC):
    """Has `num_gates` blocks of the input's weight and `num_recurrent` of the recurrent one."""

    num_gates: ClassVar[int] = 3
    num_recurrent: ClassVar[int] = 3
    num_states: ClassVar[int] = 1
    forget_gate: ClassVar[int | None] = None  # the block whose bias begins at 1
    faintness: ClassVar[float] = 1.0  # one over how large fresh outputs are, about

    @staticmethod
    @abstractmethod
    def step(x: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
        """Step by x [batch, num_gates * hidden], projected; weight and bias are the recurrent ones,
        [num_recurrent * hidden, hidden] and [num_recurrent * hidden]. Returns the next state.
        """


class Rnn(Cell):
    """Computes h' = tanh(x + U h)."""

    num_gates = num_recurrent = 1

    @staticmethod
    def step(x: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
        return (torch.tanh(x + linear(state[0], weight, bias)),)


class Lstm(Cell):
    """Computes c' = f c + i g, h' = o tanh(c'); blocks i, f, g, o."""

    num_gates = num_recurrent = 4
    num_states = 2
    forget_gate = 1
    faintness = 4.0  # two gates at a half and two tanh stand before the output

    @staticmethod
    def step(x: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
        hidden, memory = state
        gates = x + linear(hidden, weight, bias)
        i, f, g, o = gates.chunk(4, -1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory


class Gru(Cell):
    """Computes n = tanh(x_n + r (U h)), h' = (1 - z) n + z h; blocks reset, update, new."""

    @staticmethod
    def step(x: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
        (hidden,) = state
        sizes = (2 * hidden.shape[-1], hidden.shape[-1])
        x_gates, x_new = x.split(sizes, -1)
        h_gates, h_new = linear(hidden, weight, bias).split(sizes, -1)
        reset, update = torch.sigmoid(x_gates + h_gates).chunk(2, -1)
        new = torch.tanh(x_new + reset * h_new)
        return (new + update * (hidden - new),)


class Mut1(Cell):
    """Has z = s(x_z), r = s(x_r + U_r h), h' = z tanh(U (r h) + tanh(x_n)) + (1 - z) h.

    Blocks reset, update, new; the recurrent weight has no update.
    """

    num_recurrent = 2

    @staticmethod
    def step(x: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
        (hidden,) = state
        weights, biases = weight.chunk(2), bias.chunk(2)
        x_reset, x_update, x_new = x.chunk(3, -1)
        reset = torch.sigmoid(x_reset + linear(hidden, weights[0], biases[0]))
        new = torch.tanh(linear(reset * hidden, weights[1], biases[1]) + torch.tanh(x_new))
        return (hidden + torch.sigmoid(x_update) * (new - hidden),)


class Mut2(Cell):
    """Has z = s(x_z + U_z h), r = s(x_r + U_r h), h' = z tanh(U (r h) + x_n) + (1 - z) h.

    Blocks reset, update, new.
    """

    @staticmethod
    def step(x: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
        (hidden,) = state
        sizes = (2 * hidden.shape[-1], hidden.shape[-1])
        weights, biases = weight.split(sizes), bias.split(sizes)
        x_gates, x_new = x.split(sizes, -1)
        gates = torch.sigmoid(x_gates + linear(hidden, weights[0], biases[0]))
        reset, update = gates.chunk(2, -1)
        new = torch.tanh(linear(reset * hidden, weights[1], biases[1]) + x_new)
        return (hidden + update * (new - hidden),)


class Mut3(Cell):
    """Is MUT2 with z = s(x_z + U_z tanh(h)); blocks reset, update, new."""

    @staticmethod
    def step(x: Tensor, state: CellState, weight: Tensor, bias: Tensor) -> CellState:
        (hidden,) = state
        weights, biases = weight.chunk(3), bias.chunk(3)
        x_reset, x_update, x_new = x.chunk(3, -1)
        reset = torch.sigmoid(x_reset + linear(hidden, weights[0], biases[0]))
        update = torch.sigmoid(x_update + linear(torch.tanh(hidden), weights[1], biases[1]))
        new = torch.tanh(linear(reset * hidden, weights[2], biases[2]) + x_new)
        return (hidden + update * (new - hidden),)


CELLS: dict[str, type[Cell]] = {
    "rnn": Rnn,
    "lstm": Lstm,
    "gru": Gru,
    "mut1": Mut1,
    "mut2": Mut2,
    "mut3": Mut3,
}


class RecurrentCell(Blocks):
    """Holds a cell and its weights, for one step at a time: what a decoder runs in its loop.

    `input` projects what is known ahead (a whole sequence at once), `context`, where there is one,
    what each step brings; the caller adds the two.
    """

    def __init__(self, cell: str, input_dim: int, hidden_dim: int, context_dim: int = 0) -> None:
        super().__init__()
        self.cell = CELLS[cell]
        gates = self.cell.num_gates * hidden_dim
        self.input = nn.Linear(input_dim, gates)
        self.has_context = context_dim > 0
        if self.has_context:
            self.context = nn.Linear(context_dim, gates, bias=False)
        self.hidden = nn.Linear(hidden_dim, self.cell.num_recurrent * hidden_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        initialise_cell(self.cell, self.input.weight, self.input.bias, *self.hidden.parameters())
        if self.has_context:
            initialise_blocks(self.context.weight, self.cell.num_gates)

    def blocks(self) -> dict[str, int]:
        names = ("input.weight", "context.weight") if self.has_context else ("input.weight",)
        return dict.fromkeys(names, self.cell.num_gates) | {
            "hidden.weight": self.cell.num_recurrent
        }

    def begin(self, hidden: Tensor) -> CellState:
        """Begin with this hidden output; an LSTM's memory cell begins with 0."""
        return hidden, *(torch.zeros_like(hidden) for _ in range(self.cell.num_states - 1))

    def forward(self, x: Tensor, state: CellState) -> CellState:
        """Step by x [batch, num_gates * hidden]: `input`'s projection and `context`'s together."""
        return self.cell.step(x, state, self.hidden.weight, self.hidden.bias)

    def run(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """Read a sequence, as `forward` does a position, x [batch, time, num_gates * hidden]:
        -> hidden outputs [batch, time, hidden], and the last state.
        """
        outputs = []
        for gates in x.unbind(1):
            state = self(gates, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state


@torch.no_grad()
def initialise_cell(
    cell: type[Cell], input_weight: Tensor, input_bias: Tensor, weight: Tensor, bias: Tensor
) -> None:
    """Draw every gate in Xavier's range, orthogonal recurrent blocks (Saxe et al. 2014); an LSTM's
    forget bias is 1, as Gers et al. 2000 and Jozefowicz et al. 2015 advise.
    """
    initialise_blocks(input_weight, cell.num_gates)
    for block in weight.chunk(cell.num_recurrent):
        nn.init.orthogonal_(block)
    nn.init.zeros_(bias)
    nn.init.zeros_(input_bias)
    if cell.forget_gate is not None:
        input_bias.chunk(cell.num_gates)[cell.forget_gate].fill_(1.0)

"""Runs the cells of `models.layers.equations` on torch's tensors, and one that reads a context too.

A cell has no weights of its own: whoever runs it gives the input's part, which is known ahead of
time for whole sequences, and the recurrent weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.layers.equations import CELLS, CellKind
from models.layers.roles import Blocks, initialise_blocks

CellState = tuple[Tensor, ...]  # hidden [batch, hidden_dim]; LSTM: and memory cell, as large
CellStates = tuple[CellState, ...]  # of several layers


@dataclass(frozen=True)
class RecurrentWeight:
    """Holds U [num_recurrent * hidden, hidden] and its bias, as the equations multiply by it.

    What is cut of it is kept: every cut more would fill another gradient of all of it.
    """

    weight: Tensor
    bias: Tensor
    cuts: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def times(self, hidden: Tensor, first: int, last: int) -> Tensor:
        if (first, last) not in self.cuts:
            self.cuts[first, last] = self._cut(slice(first * self._dim, last * self._dim))
        return linear(hidden, *self.cuts[first, last])

    def _cut(self, rows: slice) -> tuple[Tensor, Tensor]:
        is_all = rows == slice(0, len(self.weight))
        return (self.weight, self.bias) if is_all else (self.weight[rows], self.bias[rows])

    def split(self, x: Tensor, *blocks: int) -> Sequence[Tensor]:
        return x.split([n * self._dim for n in blocks], -1)

    @property
    def _dim(self) -> int:
        return self.weight.shape[1]


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
        following: CellState = self.cell.step(x, state, self._recurrent())
        return following

    def run(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """Read a sequence, as `forward` does a position, x [batch, time, num_gates * hidden]:
        -> hidden outputs [batch, time, hidden], and the last state.
        """
        outputs, recurrent = [], self._recurrent()
        for gates in x.unbind(1):
            state = self.cell.step(gates, state, recurrent)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state

    def _recurrent(self) -> RecurrentWeight:
        return RecurrentWeight(self.hidden.weight, self.hidden.bias)


@torch.no_grad()
def initialise_cell(
    cell: CellKind, input_weight: Tensor, input_bias: Tensor, weight: Tensor, bias: Tensor
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

"""Runs cells over whole padded sequences, in one direction or both, in one layer or several.

Names and shapes of the weights are those of torch.nn.GRU and LSTM. Their own loops are not used:
this one has all cells and their only definition, and needs no packing. To learn on a CPU it takes
as long as torch's for a GRU, and up to twice as long for a layer of LSTMs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.layers.dropout import Dropout
from models.layers.equations import CELLS
from models.layers.recurrent.cells import (
    CellState,
    CellStates,
    RecurrentCell,
    RecurrentWeight,
    initialise_cell,
)
from models.layers.roles import Blocks

SOFTNESS = 0.25  # scores of fresh weights then have a standard deviation of a third to a half


class Recurrent(Blocks):
    """Runs `num_layers` layers of one kind of cell, with dropout between them.

    Weights of layer 0: weight_ih_l0 [num_gates * hidden_dim, input_dim], weight_hh_l0
    [num_recurrent * hidden_dim, hidden_dim], bias_ih_l0, bias_hh_l0; those of the backward
    direction end in `_reverse`. A further layer reads all directions of the one below.
    """

    def __init__(
        self,
        cell: str,
        input_dim: int,
        hidden_dim: int,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.cell, self.hidden_dim = CELLS[cell], hidden_dim
        ends = ("", "_reverse") if bidirectional else ("",)
        self.layers = [[f"l{layer}{end}" for end in ends] for layer in range(num_layers)]
        for layer, names in enumerate(self.layers):
            for name in names:
                self._add(name, hidden_dim * len(ends) if layer else input_dim)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for names in self.layers:
            for name in names:
                initialise_cell(self.cell, *self._weights(name))

    def blocks(self) -> dict[str, int]:
        counts = {"weight_ih": self.cell.num_gates, "weight_hh": self.cell.num_recurrent}
        names = [name for layer in self.layers for name in layer]
        return {f"{part}_{name}": count for name in names for part, count in counts.items()}

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        initial: Sequence[CellState] = (),
    ) -> tuple[Tensor, CellStates]:
        """Read x [batch, time, input_dim], padded to the longest of `lengths` [batch] (None: all).

        Returns the top layer's outputs [batch, time, directions * hidden_dim], which mean nothing
        beyond a row's length, and the state at each row's own end of every layer and direction:
        layer 0 forward, layer 0 backward, layer 1 forward, ... `initial` comes in that order too,
        or is empty: zeros.
        """
        starts = iter(initial)
        last: list[CellState] = []
        for depth, names in enumerate(self.layers):
            x = self.dropout(x) if depth else x
            runs = [self._run(name, x, lengths, next(starts, None)) for name in names]
            x = torch.cat([outputs for outputs, _ in runs], -1)
            last += [state for _, state in runs]
        return x, tuple(last)

    def _run(
        self, name: str, x: Tensor, lengths: Tensor | None, state: CellState | None
    ) -> tuple[Tensor, CellState]:
        input_weight, input_bias, *recurrent = self._weights(name)
        is_backward = name.endswith("_reverse")
        gates = linear(reverse(x, lengths) if is_backward else x, input_weight, input_bias)
        if state is None:
            zeros = gates.new_zeros(gates.shape[0], self.hidden_dim)
            state = (zeros,) * self.cell.num_states
        states, weight = [], RecurrentWeight(*recurrent)
        for gate in gates.unbind(1):
            state = self.cell.step(gate, state, weight)
            states.append(state)
        history = [torch.stack(parts, 1) for parts in zip(*states, strict=True)]
        if lengths is not None:
            state = tuple(_at(part, lengths - 1) for part in history)
        return reverse(history[0], lengths) if is_backward else history[0], state

    def _add(self, name: str, input_dim: int) -> None:
        gates = self.cell.num_gates * self.hidden_dim
        recurrent = self.cell.num_recurrent * self.hidden_dim
        shapes = {
            "weight_ih": (gates, input_dim),
            "bias_ih": (gates,),
            "weight_hh": (recurrent, self.hidden_dim),
            "bias_hh": (recurrent,),
        }
        for part, shape in shapes.items():
            self.register_parameter(f"{part}_{name}", nn.Parameter(torch.empty(shape)))

    def _weights(self, name: str) -> list[Tensor]:
        parts = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        return [getattr(self, f"{part}_{name}") for part in parts]


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Turn each row of x [batch, time, ...] round, up to its own length; padding stays in place."""
    if lengths is None:
        return x.flip(1)
    positions = torch.arange(x.shape[1], device=x.device)[None]
    mirrored = lengths[:, None] - 1 - positions
    index = torch.where(mirrored >= 0, mirrored, positions)
    return x.take_along_dim(index.reshape(*index.shape, *(1,) * (x.dim() - 2)), 1)


def _at(x: Tensor, positions: Tensor) -> Tensor:
    """Take x [batch, time, dim] at one position of each row -> [batch, dim]."""
    return x[torch.arange(x.shape[0], device=x.device), positions]


def initialise(module: nn.Module) -> None:
    """Draw a module's weights by Xavier's ranges, words by their size; for `Module.apply`."""
    if isinstance(module, Recurrent | RecurrentCell):
        module.reset_parameters()
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


def initialise_readout(layer: nn.Linear, cell: str) -> None:
    """Make a map of nothing but cells' outputs as loud as one of loud cells."""
    nn.init.xavier_uniform_(layer.weight, gain=CELLS[cell].faintness)


@torch.no_grad()
def soften_scores(layer: nn.Linear, cell: str) -> None:
    """Make products of cells' outputs so small that a softmax of them begins soft. With loud cells
    a fresh model looked hard at some word, whichever, and learned to do without the source.
    """
    layer.weight.mul_(SOFTNESS * CELLS[cell].faintness)

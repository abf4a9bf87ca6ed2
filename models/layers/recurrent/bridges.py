"""Lets a stacked decoder begin with what its encoder ended with (Luong et al. 2015, and others)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.configs.translators.luong import LuongConfig
from models.layers.recurrent.cells import CELLS, CellState, CellStates


class Bridge(nn.Module):
    """Begins each layer where the encoder's ended (Luong et al. 2015)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        self.config, self.num_states = config, CELLS[config.cell].num_states

    def forward(self, last: Sequence[CellState]) -> CellStates:
        """Take the encoder's last states, of every layer and direction, each [batch, its dim]."""
        return join_directions(last, self.config.num_directions)


class ReluBridge(Bridge):
    """Computes relu(W [h_1; h_2; ...] + b) of a direction's last states in all layers.

    Hidden outputs and memory cells are apart. As in OpenNMT-py, of two directions the lower half
    of the layers stands for one and the upper half for the other.
    """

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        dim = config.hidden_dim // config.num_directions * config.num_layers
        self.parts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(self.num_states))

    def forward(self, last: Sequence[CellState]) -> CellStates:
        bridged = []
        for layer, each in zip(self.parts, zip(*last, strict=True), strict=True):
            joined = torch.cat(each, -1).unflatten(-1, (-1, layer.in_features))
            bridged.append(torch.relu(layer(joined)).flatten(1).chunk(len(last), -1))
        return super().forward(list(zip(*bridged, strict=True)))


class LinearBridge(Bridge):
    """Computes W h_l + b of each layer l, hidden outputs and memory cells apart, as fairseq."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        sizes = config.encoder_dim, config.hidden_dim
        self.parts = nn.ModuleList(nn.Linear(*sizes) for _ in range(self.num_states))

    def forward(self, last: Sequence[CellState]) -> CellStates:
        states = super().forward(last)
        return tuple(
            tuple(layer(part) for layer, part in zip(self.parts, state, strict=True))
            for state in states
        )


class TopBridge(Bridge):
    """Begins all layers, and LSTMs' memory cells, with the encoder's last output, as JoeyNMT.

    Of two directions the forward one, where that alone is as large.
    """

    def forward(self, last: Sequence[CellState]) -> CellStates:
        top = super().forward(last)[-1][0]
        return ((self.start(top),) * self.num_states,) * self.config.num_layers

    def start(self, top: Tensor) -> Tensor:
        """Make a beginning [batch, hidden_dim] of the top layer's [batch, encoder_dim]."""
        return top[:, : self.config.hidden_dim]


class TanhBridge(TopBridge):
    """Begins all layers with tanh(W h + b) of the encoder's last output."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.parts = nn.ModuleList([nn.Linear(config.encoder_dim, config.hidden_dim)])

    def start(self, top: Tensor) -> Tensor:
        return torch.tanh(self.parts[0](top))


class ZeroBridge(TopBridge):
    """Begins with zeros."""

    def start(self, top: Tensor) -> Tensor:
        return top.new_zeros(len(top), self.config.hidden_dim)


BRIDGES: dict[str, type[Bridge]] = {
    "none": Bridge,
    "relu": ReluBridge,
    "linear": LinearBridge,
    "top": TopBridge,
    "tanh": TanhBridge,
    "zeros": ZeroBridge,
}


def join_directions(last: Sequence[CellState], num_directions: int) -> CellStates:
    """Put the directions of each layer side by side."""
    layers = [last[i : i + num_directions] for i in range(0, len(last), num_directions)]
    return tuple(
        tuple(torch.cat(parts, -1) for parts in zip(*layer, strict=True)) for layer in layers
    )

"""Writes how Luong's decoder begins, in the encode graph.

`models.layers.recurrent.bridges` says what each kind is.
"""

import numpy as np

from export.graph.value import Value
from export.layers.basic import Layers
from export.layers.recurrent.cells import State
from models.configs.translators.luong import LuongConfig
from models.layers.equations import CELLS


class LuongBridge:
    def __init__(self, config: LuongConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph

    def begin(self, last: list[State]) -> list[State]:
        """Make of the encoder's last states, of every layer and direction, those of the decoder's
        layers.
        """
        kind = self.config.imported.bridge
        if kind == "relu":
            last = self._relu(last)
        states = self._join_directions(last)
        if kind in ("none", "relu"):
            return states
        if kind == "linear":
            return [self._linear(state) for state in states]
        start = self._start(states[-1][0])
        return [self._copies(start) for _ in range(self.config.num_layers)]

    def _relu(self, last: list[State]) -> list[State]:
        """Map all layers of a direction together."""
        op, dim = self.graph.op, self.config.hidden_dim // self.config.num_directions
        size = dim * self.config.num_layers
        bridged = []
        for part, each in enumerate(zip(*last, strict=True)):
            joined = op.Concat(*each, axis=-1).reshape(0, -1, size)
            linear = self.layers.linear(joined, [f"bridge.parts.{part}"], size, [size], bias=True)
            flat = linear.relu().reshape(0, -1)
            bridged.append(self.graph.split(flat, [dim] * len(last)))
        return list(zip(*bridged, strict=True))

    def _join_directions(self, last: list[State]) -> list[State]:
        """Put the directions of each layer side by side."""
        num = self.config.num_directions
        if num == 1:
            return last
        layers = [last[i : i + num] for i in range(0, len(last), num)]
        return [
            tuple(self.graph.op.Concat(*parts, axis=-1) for parts in zip(*layer, strict=True))
            for layer in layers
        ]

    def _linear(self, state: State) -> State:
        return tuple(self._map(part, number) for number, part in enumerate(state))

    def _map(self, x: Value, part: int) -> Value:
        sizes = self.config.encoder_dim, [self.config.hidden_dim]
        return self.layers.linear(x, [f"bridge.parts.{part}"], *sizes, bias=True)

    def _start(self, top: Value) -> Value:
        """Make a beginning [batch, hidden_dim] of the top layer's last output."""
        dim = self.config.hidden_dim
        if self.config.imported.bridge == "tanh":
            return self._map(top, 0).tanh()
        if self.config.imported.bridge == "top":
            return top[:, :dim]
        one = top[:, :1]
        return self.graph.constant(np.zeros((1, dim)), top.dtype) + (one - one)

    def _copies(self, start: Value) -> State:
        """Give an output of its own to each state."""
        num = CELLS[self.config.cell].num_states
        return tuple(self.graph.op.Identity(start) for _ in range(num))

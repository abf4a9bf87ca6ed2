"""Writes the step that Cho's and Bahdanau's decoders share: a cell and a readout, both fed by the
last word and a context.

Projections of one input, for the cell's gates and for the readout, are one matrix product.
"""

from typing import Literal

import numpy as np

from export.graph.value import Value
from export.graph.writer import Array
from export.layers.basic import Layers
from export.layers.recurrent.cells import State, cell_states, cell_step, read_states, write_states
from models.configs.recurrent import RecurrentConfig
from models.layers.equations import CELLS, READOUTS

Kind = Literal["maxout", "tanh"]


class ContextDecoder:
    """Writes modules `decoder` and `readout`, of `cells` and `readout` in
    `models.layers.recurrent`.
    """

    def __init__(
        self, config: RecurrentConfig, layers: Layers, context_dim: int, readout: Kind
    ) -> None:
        self._config, self._layers, self._context_dim = config, layers, context_dim
        self._readout = READOUTS[readout]
        self._readout_dim = config.readout_dim * self._readout.width
        self._gates = CELLS[config.cell].num_gates * config.hidden_dim
        [self.states] = cell_states(config.cell, config.hidden_dim, layers.dtype, 1)

    @property
    def feed_dim(self) -> int:
        """Tell how much a word or a context feeds: the gates, then the readout."""
        return self._gates + self._readout_dim

    def project_token(self, embedded: Value) -> Value:
        """Project [batch, embedding_dim] to [batch, feed_dim]."""
        bias = self._layers.weights.take("decoder.input.bias", self._gates)
        padded = np.pad(bias, (0, self._readout_dim))
        dim = self._config.embedding_dim
        return self._project(embedded, "decoder.input", "readout.embedding", dim, padded)

    def project_context(self, context: Value) -> Value:
        """Project [batch, context_dim] to [batch, feed_dim]."""
        names = "decoder.context", "readout.context"
        return self._project(context, *names, self._context_dim)

    def open(self) -> State:
        """Declare the states as inputs; the first is the hidden one [batch, hidden_dim]."""
        return read_states(self._layers, self.states)

    def step(self, feed: Value, state: State) -> Value:
        """Make of what word and context feed [batch, feed_dim] the readout [batch, readout_dim]."""
        gates, readout = self._layers.graph.split(feed, [self._gates, self._readout_dim])
        config = self._config
        cell = cell_step(self._layers, config.cell, "decoder.hidden", config.hidden_dim)
        following = cell(gates, state)
        write_states(self._layers, self.states, following)
        total = self._project_state(following[0]) + readout
        parts = self._layers.graph.split(total, [config.readout_dim] * self._readout.width)
        activated: Value = self._readout.activate(*parts)
        return activated

    def _project_state(self, hidden: Value) -> Value:
        bias = self._layers.weights.take("readout.state.bias", self._readout_dim)
        weight = self._readout_weight("readout.state", self._config.hidden_dim)
        return self._layers.project(hidden, "readout.state", weight, self._apart(bias))

    def _project(
        self, x: Value, gates: str, readout: str, in_dim: int, bias: Array | None = None
    ) -> Value:
        weight = self._layers.weights.take(f"{gates}.weight", self._gates, in_dim)
        joined = np.concatenate([weight, self._readout_weight(readout, in_dim)])
        return self._layers.project(x, f"{gates}+{readout}", joined, bias)

    def _readout_weight(self, name: str, in_dim: int) -> Array:
        return self._apart(self._layers.weights.take(f"{name}.weight", self._readout_dim, in_dim))

    def _apart(self, rows: Array) -> Array:
        """Put maxout's pairs, 0 and 1, 2 and 3, ..., in two halves: 0, 2, ... before 1, 3, ..."""
        width = self._readout.width
        return np.concatenate([rows[i::width] for i in range(width)])

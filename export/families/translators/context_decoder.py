"""The step that Cho's and Bahdanau's decoders share: a cell and a readout, both fed by the last
word and a context.

Projections of one input, for the cell's gates and for the readout, are one matrix product.
"""

from typing import Literal

import numpy as np

from export.graph.writer import Array, Value
from export.layers.basic import Layers
from export.layers.cells import STEPS, State, cell_states, cell_step, read_states, write_states
from models.configs.recurrent import RecurrentConfig

Kind = Literal["maxout", "tanh"]


class ContextDecoder:
    """The modules `decoder` and `readout` (`models.layers.cells`, `models.layers.readout`)."""

    def __init__(
        self, config: RecurrentConfig, layers: Layers, context_dim: int, readout: Kind
    ) -> None:
        self._config, self._layers, self._context_dim = config, layers, context_dim
        self._is_maxout = readout == "maxout"
        self._readout_dim = config.readout_dim * (2 if self._is_maxout else 1)
        self._gates = STEPS[config.cell].num_gates * config.hidden_dim
        [self.states] = cell_states(config.cell, config.hidden_dim, layers.dtype, 1)

    @property
    def feed_dim(self) -> int:
        """How much a word or a context feeds: the gates, then the readout."""
        return self._gates + self._readout_dim

    def project_token(self, embedded: Value) -> Value:
        """[batch, embedding_dim] -> [batch, feed_dim]."""
        bias = self._layers.weights.take("decoder.input.bias", self._gates)
        padded = np.pad(bias, (0, self._readout_dim))
        dim = self._config.embedding_dim
        return self._project(embedded, "decoder.input", "readout.embedding", dim, padded)

    def project_context(self, context: Value) -> Value:
        """[batch, context_dim] -> [batch, feed_dim]."""
        names = "decoder.context", "readout.context"
        return self._project(context, *names, self._context_dim)

    def open(self) -> State:
        """Declare the states as inputs; the first is the hidden one [batch, hidden_dim]."""
        return read_states(self._layers, self.states)

    def step(self, feed: Value, state: State) -> Value:
        """What word and context feed [batch, feed_dim] -> the readout [batch, readout_dim]."""
        op = self._layers.op
        gates, readout = self._layers.graph.split(feed, [self._gates, self._readout_dim])
        config = self._config
        cell = cell_step(self._layers, config.cell, "decoder.hidden", config.hidden_dim)
        following = cell(gates, state)
        write_states(self._layers, self.states, following)
        return self._activate(op.Add(self._project_state(following[0]), readout))

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
        """Maxout's pairs, 0 and 1, 2 and 3, ..., in two halves: 0, 2, ... before 1, 3, ..."""
        return np.concatenate([rows[0::2], rows[1::2]]) if self._is_maxout else rows

    def _activate(self, total: Value) -> Value:
        """The larger of each pair, or tanh."""
        op = self._layers.op
        if not self._is_maxout:
            return op.Tanh(total)
        return op.Max(*self._layers.graph.split(total, [self._config.readout_dim] * 2))

"""Graphs of the Transformer with a recurrent decoder: one cell per layer is kept of the target."""

import numpy as np

from export.graph.cell_functions import SSRU_CELL
from export.graph.functions import parse_function
from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.transformer import BaseTransformerGraph
from models.architectures.transformer_ssru.config import TransformerSSRUConfig
from serving.bundle.manifest import StateKind


class TransformerSSRUGraph(BaseTransformerGraph[TransformerSSRUConfig]):
    """Computes f = sigmoid(W_t x + b_f), c' = f c + (1 - f) W x, relu(c') (Kim et al. 2019)."""

    def __init__(self, config: TransformerSSRUConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.past_states = [
            [layers.state(f"cell.{layer}", StateKind.REPLACE, 1, config.d_model)]
            for layer in range(config.decoder_layers)
        ]

    def read_target(self, x: Value, layer: int) -> Value:
        name = f"decoder.layers.{layer}.recurrence"
        (state,) = self.past_states[layer]
        gates = self._project(self.before_sublayer(x, f"{name}_norm"), name)
        hidden, cell = self._step(gates, self.graph.state_input(state))
        self.graph.next_state(state, cell)
        return self.after_sublayer(x, hidden, f"{name}_norm")

    def _step(self, gates: Value, memory: Value) -> tuple[Value, Value]:
        """Return relu(c') and c'."""
        if self.layers.dtype == "float32":
            types = [gates.dtype, gates.dtype]
            hidden, cell = self.graph.call(parse_function(SSRU_CELL), gates, memory, types=types)
            return hidden, cell
        dim = self.config.d_model
        forget, new = self.graph.split(gates, [dim, dim])
        cell = new + forget.sigmoid() * (memory - new)
        return cell.relu(), cell

    def _project(self, x: Value, name: str) -> Value:
        """Return W_t x + b_f and W x side by side."""
        dim, weights = self.config.d_model, self.layers.weights
        names = [f"{name}.{part}.weight" for part in ("forget", "input")]
        weight = np.concatenate([weights.take(part, dim, dim) for part in names])
        bias = np.append(weights.take(f"{name}.forget.bias", dim), np.zeros(dim, np.float32))
        channels = weights.channels(names, [dim, dim])
        return self.layers.project(x, f"{name}.forget+input", weight, bias, channels)


build = TransformerSSRUGraph.build

"""Graphs of the Transformer with a recurrent decoder: one cell per layer is kept of the target."""

import numpy as np

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
        forget, new = self._project(self.before_sublayer(x, f"{name}_norm"), name)
        kept = self.graph.state_input(state) - new
        cell = new + forget.sigmoid() * kept
        self.graph.next_state(state, cell)
        return self.after_sublayer(x, cell.relu(), f"{name}_norm")

    def _project(self, x: Value, name: str) -> list[Value]:
        """Return W_t x + b_f and W x, computed in one product."""
        dim, weights = self.config.d_model, self.layers.weights
        names = [f"{name}.{part}.weight" for part in ("forget", "input")]
        weight = np.concatenate([weights.take(each, dim, dim) for each in names])
        bias = np.append(weights.take(f"{name}.forget.bias", dim), np.zeros(dim, np.float32))
        channels = weights.channels(names, [dim, dim])
        joined = self.layers.project(x, f"{name}.forget+input", weight, bias, channels)
        return self.graph.split(joined, [dim, dim])


build = TransformerSSRUGraph.build

"""The Transformer with a recurrent decoder: of the target, step keeps one cell per layer."""

import numpy as np

from export.families.translators.transformer import CrossAttention, Step, build_with
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import Value
from export.layers.basic import Layers
from models.configs.translators.transformer_ssru import TransformerSSRUConfig
from serving.bundle.manifest import Precision, StateKind, StateSpec


def build(config: TransformerSSRUConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return build_with(SSRUStep, config, weights, precision)


class SSRUStep(Step):
    """f = sigmoid(W_t x + b_f), c' = f c + (1 - f) W x, relu(c') (Kim et al. 2019)."""

    def __init__(
        self, config: TransformerSSRUConfig, layers: Layers, cross_attention: type[CrossAttention]
    ) -> None:
        super().__init__(config, layers, cross_attention)
        shape = (1, config.d_model)
        self.past_states = [
            [StateSpec(f"cell.{layer}", StateKind.REPLACE, shape, layers.dtype)]
            for layer in range(config.decoder_layers)
        ]

    def read_target(self, x: Value, layer: int) -> Value:
        op, name = self.graph.op, f"decoder.layers.{layer}.recurrence"
        (state,) = self.past_states[layer]
        gate, update = self._project(self.enter(x, f"{name}_norm"), name)
        kept = op.Sub(self.graph.state_input(state), update)
        cell = op.Add(update, op.Mul(op.Sigmoid(gate), kept))
        self.graph.next_state(state, cell)
        return self.leave(x, op.Relu(cell), f"{name}_norm")

    def _project(self, x: Value, name: str) -> list[Value]:
        """W_t x + b_f and W x, in one product."""
        dim, weights = self.config.d_model, self.layers.weights
        names = [f"{name}.{part}.weight" for part in ("forget", "input")]
        weight = np.concatenate([weights.take(each, dim, dim) for each in names])
        bias = np.append(weights.take(f"{name}.forget.bias", dim), np.zeros(dim, np.float32))
        channels = weights.channels(names, [dim, dim])
        joined = self.layers.project(x, f"{name}.forget+input", weight, bias, channels)
        return self.graph.split(joined, [dim, dim])

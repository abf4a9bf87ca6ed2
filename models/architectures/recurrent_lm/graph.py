"""Graphs of the recurrent language model, with attention to all earlier outputs or without."""

from export.graph.model import ExportedModel, Weights
from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.recurrent_language_model import (
    AttentiveReadoutGraph,
    ReadoutGraph,
    recurrent_language_model,
)
from export.layers.tape import Tape
from models.architectures.recurrent_lm.config import RecurrentLMConfig
from serving.bundle.manifest import Precision


class PlainReadoutGraph(ReadoutGraph):
    """Computes h* = tanh(W_x h_t)."""

    def build(self, output: Value) -> Value:
        config = self._config
        return self._linear(output, ["combine"], config.hidden_dim, [config.embedding_dim]).tanh()


def build(config: RecurrentLMConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return recurrent_language_model(config, weights, precision, _readout)


def _readout(config: RecurrentLMConfig, layers: Layers) -> ReadoutGraph:
    if config.attention is None:
        return PlainReadoutGraph(config, layers)
    dim = config.attention.dim
    tape = Tape(layers, "tape", dim, config.hidden_dim)
    return AttentiveReadoutGraph(config, layers, tape, num_parts=1, attention_dim=dim)

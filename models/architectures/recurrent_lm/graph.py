"""Builds the recurrent language model, with attention over a tape of its outputs or without."""

from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.layers.attentive import AttentiveReadout
from export.layers.basic import Layers
from export.layers.recurrent.tape import Tape
from export.layers.recurrent_language import (
    ReadoutGraph,
    recurrent_language_model,
)
from models.architectures.recurrent_lm.config import RecurrentLMConfig
from serving.bundle.manifest import Precision, StateSpec


def build(config: RecurrentLMConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return recurrent_language_model(config, weights, precision, _readout)


class PlainReadout:
    """Reads out h* = tanh(W_x h_t)."""

    states: tuple[StateSpec, ...] = ()
    telling = None

    def __init__(self, config: RecurrentLMConfig, layers: Layers) -> None:
        self._config, self._layers = config, layers

    def build(self, output: Value) -> Value:
        dims = self._config.hidden_dim, [self._config.embedding_dim]
        return self._layers.linear(output, ["readout.combine"], *dims, bias=False).tanh()


def _readout(config: RecurrentLMConfig, layers: Layers) -> ReadoutGraph:
    if config.attention is None:
        return PlainReadout(config, layers)
    dim = config.attention.dim
    tape = Tape(layers, "tape", dim, config.hidden_dim)
    return AttentiveReadout(config, layers, tape, num_parts=1, attention_dim=dim)

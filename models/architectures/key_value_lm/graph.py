"""Graphs of the language model that attends to a window of its last outputs."""

from export.graph.model import ExportedModel, Weights
from export.layers.basic import Layers
from export.layers.recurrent_language_model import AttentiveReadoutGraph, recurrent_language_model
from export.layers.tape import TapeWindow
from models.architectures.key_value_lm.config import KeyValueLMConfig
from serving.bundle.manifest import Precision


def build(config: KeyValueLMConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return recurrent_language_model(config, weights, precision, _readout)


def _readout(config: KeyValueLMConfig, layers: Layers) -> AttentiveReadoutGraph:
    window = TapeWindow(layers, config.window, config.part_dim, config.part_dim)
    return AttentiveReadoutGraph(config, layers, window, config.num_parts, config.part_dim)

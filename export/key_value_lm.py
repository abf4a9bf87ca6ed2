"""The language model with attention over its last outputs: keys and values in a window."""

from export.attentive import AttentiveReadout, Window
from export.graph import GraphWriter
from export.layers import Layers
from export.model import ExportedModel
from export.recurrent_language import recurrent_language_model
from export.weights import Weights
from models.configs.key_value_lm import KeyValueLMConfig
from serving.bundle.manifest import Precision


def build(config: KeyValueLMConfig, weights: Weights, precision: Precision) -> ExportedModel:
    layers = Layers(GraphWriter("step"), weights, precision)
    window = Window(layers, config.window, config.part_dim, config.part_dim)
    readout = AttentiveReadout(config, layers, window, config.num_parts, config.part_dim)
    return recurrent_language_model(config, layers, readout)

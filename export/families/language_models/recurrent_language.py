"""Writes the step of recurrent language models: one token of every row, also of prompts."""

from itertools import chain
from typing import Protocol

from export.families.language_models.language import language_model
from export.graph.model import ExportedModel
from export.graph.value import Value
from export.layers.basic import Layers
from export.layers.recurrent import RecurrentLayers
from export.layers.vocabulary import recurrent_vocabulary
from models.configs.language_models.recurrent_lm import RecurrentLanguageModelConfig
from serving.bundle.manifest import StateSpec


class ReadoutGraph(Protocol):
    """Tells the recurrent families apart, with the states it keeps."""

    @property
    def states(self) -> tuple[StateSpec, ...]: ...

    def build(self, output: Value) -> Value:
        """Make of the cells' output [batch, hidden_dim] what predicts [batch, embedding_dim]."""


def recurrent_language_model(
    config: RecurrentLanguageModelConfig, layers: Layers, readout: ReadoutGraph
) -> ExportedModel:
    """Build its one graph."""
    graph, words = layers.graph, recurrent_vocabulary(layers, config)
    sizes = config.embedding_dim, config.hidden_dim, config.num_layers
    cells = RecurrentLayers(layers, "recurrent", config.cell, *sizes)
    output = cells.step(words.embed_token(graph.input("ids", "int64", (1,))))
    words.choose(readout.build(output))
    return language_model(config, (graph,), (*chain(*cells.states), *readout.states))

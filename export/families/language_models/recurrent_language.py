"""The step of recurrent language models: one token of every row, also of prompts."""

from itertools import chain
from typing import Protocol

from export.families.language_models.language import language_model
from export.graph.model import ExportedModel
from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.recurrent import RecurrentLayers
from export.layers.vocabulary import choose
from models.configs.language_models.recurrent_lm import RecurrentLanguageModelConfig
from serving.bundle.manifest import StateSpec


class Readout(Protocol):
    """What tells the recurrent families apart, with the states it keeps."""

    @property
    def states(self) -> tuple[StateSpec, ...]: ...

    def build(self, output: Value) -> Value:
        """The cells' output [batch, hidden_dim] -> what predicts, [batch, embedding_dim]."""


def recurrent_language_model(
    config: RecurrentLanguageModelConfig, layers: Layers, readout: Readout
) -> ExportedModel:
    graph = layers.graph
    ids = graph.input("ids", "int64", (1,))
    table = config.vocab_size, config.embedding_dim
    embedded = layers.embed(ids, "embedding", *table, config.scale_of_embeddings)
    sizes = config.embedding_dim, config.hidden_dim, config.num_layers
    cells = RecurrentLayers(layers, "recurrent", config.cell, *sizes)
    output = cells.step(graph.op.Squeeze(embedded, graph.ints(1)))
    choose(layers, config, readout.build(output), config.embedding_dim)
    return language_model(config, (graph,), (*chain(*cells.states), *readout.states))

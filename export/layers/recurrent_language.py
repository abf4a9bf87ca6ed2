"""Writes the step of recurrent language models: one token of every row, also of prompts."""

from collections.abc import Callable
from itertools import chain
from typing import Protocol, TypeVar

from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.basic import Layers
from export.layers.language import language_model
from export.layers.recurrent.recurrent import RecurrentLayers
from export.layers.telling.telling import Telling
from export.layers.vocabulary import recurrent_vocabulary
from models.configs.recurrent import RecurrentLanguageModelConfig
from serving.bundle.manifest import STEP_ATTENTION, Precision, StateSpec

Config = TypeVar("Config", bound=RecurrentLanguageModelConfig)


class ReadoutGraph(Protocol):
    """Tells the recurrent families apart, with the states it keeps."""

    @property
    def states(self) -> tuple[StateSpec, ...]: ...

    @property
    def telling(self) -> Telling | None:
        """Give what tells of attention, where there is any."""

    def build(self, output: Value) -> Value:
        """Make of the cells' output [batch, hidden_dim] what predicts [batch, embedding_dim]."""


ReadoutOf = Callable[[Config, Layers], ReadoutGraph]


def recurrent_language_model(
    config: Config, weights: Weights, precision: Precision, readout_of: ReadoutOf[Config]
) -> ExportedModel:
    """Build the step graph and, where it attends, the one that tells what it looks at."""

    def part(name: str) -> tuple[Layers, ReadoutGraph]:
        layers = Layers(GraphWriter(name), weights, precision)
        return layers, readout_of(config, layers)

    layers, readout = part("step")
    states = _write(config, layers, readout)
    if readout.telling is None:
        return language_model(config, (layers.graph,), states)
    telling, readout = part(STEP_ATTENTION)
    _write(config, telling, readout)
    told = readout.telling.shapes if readout.telling else {}
    return language_model(config, (layers.graph, telling.graph), states, told)


def _write(
    config: RecurrentLanguageModelConfig, layers: Layers, readout: ReadoutGraph
) -> tuple[StateSpec, ...]:
    """Write one graph; return its states."""
    graph, words = layers.graph, recurrent_vocabulary(layers, config)
    sizes = config.embedding_dim, config.hidden_dim, config.num_layers
    cells = RecurrentLayers(layers, "recurrent", config.cell, *sizes)
    output = cells.step(words.embed_token(graph.input("ids", "int64", (1,))))
    words.choose(readout.build(output))
    return (*chain(*cells.states), *readout.states)

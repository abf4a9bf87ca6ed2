"""Graphs of recurrent language models: cells read one token of every row, then a readout."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import chain
from typing import TypeVar

from export.graph.model import ExportedModel, Weights
from export.graph.writer import GraphWriter, Value
from export.layers.basic import Layers
from export.layers.memory import AttentionOutputs
from export.layers.recurrent import RecurrentLayers
from export.layers.tape import Tape, TapeWindow
from export.layers.vocabulary import recurrent_vocabulary
from models.configs.recurrent import RecurrentLanguageModelConfig
from serving.bundle.manifest import STEP_ATTENTION, AttentionKind, Limits, Precision, StateSpec

Config = TypeVar("Config", bound=RecurrentLanguageModelConfig)


class ReadoutGraph(ABC):
    """Turns the cells' outputs into what predicts the next token; architectures differ in it."""

    attends = False
    states: tuple[StateSpec, ...] = ()

    def __init__(self, config: RecurrentLanguageModelConfig, layers: Layers) -> None:
        self._config, self._layers, self._graph = config, layers, layers.graph
        self.attention_outputs = AttentionOutputs(layers.graph)

    @abstractmethod
    def build(self, output: Value) -> Value:
        """Return [batch, embedding_dim] for the cells' output [batch, hidden_dim]."""

    def _linear(self, x: Value, names: list[str], in_dim: int, out_dims: list[int]) -> Value:
        names = [f"readout.{name}" for name in names]
        return self._layers.linear(x, names, in_dim, out_dims, bias=False)


class AttentiveReadoutGraph(ReadoutGraph):
    """Attends from the output to earlier outputs, each cut into key, value and prediction.

    `models.layers.recurrent_language_model` has the equations.
    """

    attends = True

    def __init__(
        self,
        config: RecurrentLanguageModelConfig,
        layers: Layers,
        past: Tape | TapeWindow,
        num_parts: int,
        attention_dim: int,
    ) -> None:
        super().__init__(config, layers)
        self._past, self._num_parts, self._attention_dim = past, num_parts, attention_dim
        self.states = past.states

    def build(self, output: Value) -> Value:
        graph, part_dim = self._graph, self._config.hidden_dim // self._num_parts
        parts = graph.split(output, [part_dim] * self._num_parts)
        sizes = [self._attention_dim] * 2
        joined = self._linear(parts[0], ["key", "query"], part_dim, sizes)
        key, query = graph.split(joined, sizes)
        self._past.open(graph.input("past_lengths", "int32", ()))
        context, weights = self._past.read(query, "readout.score")
        if self.attention_outputs.is_on:
            attended = self._past.weights_by_position(
                weights, self.attention_outputs.num_attended()
            )
            self.attention_outputs.put(AttentionKind.DECODER, attended.unsqueeze(1, 2))
        self._past.append(key, parts[min(1, len(parts) - 1)])
        both = graph.op.Concat(context, parts[-1], axis=-1)
        return self._linear(both, ["combine"], 2 * part_dim, [self._config.embedding_dim]).tanh()


def recurrent_language_model(
    config: Config,
    weights: Weights,
    precision: Precision,
    readout_of: Callable[[Config, Layers], ReadoutGraph],
) -> ExportedModel:
    """Write `step` and, if the readout attends, `step_attention`."""

    def write(name: str) -> tuple[GraphWriter, tuple[StateSpec, ...], ReadoutGraph]:
        layers = Layers(GraphWriter(name), weights, precision)
        readout, words = readout_of(config, layers), recurrent_vocabulary(layers, config)
        sizes = config.embedding_dim, config.hidden_dim, config.num_layers
        cells = RecurrentLayers(layers, "recurrent", config.cell, *sizes)
        output = cells.step(words.embed_token(layers.graph.input("ids", "int64", (1,))))
        words.choose(readout.build(output))
        return layers.graph, (*chain(*cells.states), *readout.states), readout

    limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
    graph, states, readout = write("step")
    if not readout.attends:
        return ExportedModel((graph,), states, limits)
    graph_with_attention, _, readout = write(STEP_ATTENTION)
    shapes = readout.attention_outputs.shapes
    return ExportedModel((graph, graph_with_attention), states, limits, attention=shapes)

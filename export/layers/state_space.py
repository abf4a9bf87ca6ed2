"""Graphs of state space models: padding that changes no state, and their short convolution.

Convolution and recurrence are in single precision everywhere: what a state loses in a step is lost
for good.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from export.graph.model import ExportedModel, Weights
from export.graph.writer import GraphWriter, Value
from export.layers.attention import is_real
from export.layers.basic import Layers
from export.layers.vocabulary import VocabularyGraph
from serving.bundle.manifest import Limits, Precision, StateKind, StateSpec

PRECISE = "float32"


@dataclass(frozen=True)
class RealTokens:
    """Which of each row's tokens [batch, tokens] are real. Padding after them must not change a
    state.

    are_real: [batch, tokens, 1], 1.0 or 0.0. ends: int64 [batch, 1], how many are real.
    """

    are_real: Value
    ends: Value


@dataclass(frozen=True)
class PromptInputs:
    """The inputs of the graph: ids [batch, tokens], int32 lengths [batch]."""

    ids: Value
    past_lengths: Value
    total_lengths: Value
    tokens: RealTokens


def read_tokens(graph: GraphWriter) -> PromptInputs:
    """Declare the graph's inputs besides the states."""
    ids = graph.input("ids", "int64", ("tokens",))
    past_lengths = graph.input("past_lengths", "int32", ())
    total_lengths = graph.input("total_lengths", "int32", ())
    lengths = total_lengths - past_lengths
    are_real = is_real(ids, lengths).cast(PRECISE).unsqueeze(2)
    tokens = RealTokens(are_real, lengths.cast("int64").unsqueeze(1))
    return PromptInputs(ids, past_lengths, total_lengths, tokens)


class LayerGraph(Protocol):
    """One layer in the graph."""

    @property
    def states(self) -> list[StateSpec]: ...

    def build(self, u: Value, tokens: RealTokens) -> Value:
        """Read u [batch, tokens, d_model] and the states. Return the output and write the next
        states.
        """


def build_model(
    make_layer: Callable[[Any, Layers, int], LayerGraph],
    config: Any,
    weights: Weights,
    precision: Precision,
) -> ExportedModel:
    """Write the graph of a model whose layers `make_layer` makes of the configuration, `Layers` and
    a layer's number.
    """
    layers = Layers(GraphWriter("step"), weights, precision, in_blocks=True)
    words = VocabularyGraph(layers, config, (config.d_model, config.d_model), bias=None)
    inputs = read_tokens(layers.graph)
    x, states = words.embed(inputs.ids), list[StateSpec]()
    for number in range(config.num_layers):
        layer = make_layer(config, layers, number)
        x = layer.build(x, inputs.tokens)
        states += layer.states
    x = layers.last_position(x, inputs.past_lengths, inputs.total_lengths)
    words.choose(layers.rms_norm(x, "norm", config.d_model, config.norm_epsilon))
    limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
    return ExportedModel((layers.graph,), tuple(states), limits)


class CausalConvolutionGraph:
    """The short causal convolution of a layer's mixer, followed by SiLU. window: the state with its
    last inputs.
    """

    def __init__(self, layers: Layers, number: int, channels: int, size: int) -> None:
        self._layers, self._graph = layers, layers.graph
        self._name, self._channels, self._size = f"layers.{number}.mixer.conv", channels, size
        shape = (size - 1, channels)
        self.window = StateSpec(f"window.{number}", StateKind.REPLACE, shape, PRECISE)

    def build(self, read: Value, tokens: RealTokens, *, bias: bool) -> Value:
        """Convolve inputs [batch, tokens, channels] together with those before them."""
        graph, size = self._graph, self._size
        window = graph.state_input(self.window)
        weight = self._weight("weight", self._channels, 1, size)
        added = self._weight("bias", self._channels) if bias else None
        joined = graph.op.Concat(window, read, axis=1)
        last = (tokens.ends + graph.ints(*range(size - 1))).unsqueeze(2)  # [batch, size - 1, 1]
        graph.next_state(self.window, graph.op.GatherND(joined, last, batch_dims=1))
        inputs = read.transpose(0, 2, 1), weight, added, window.transpose(0, 2, 1)
        y, _ = graph.ms.CausalConvWithState(*inputs, activation="silu", _outputs=2)
        return y.transpose(0, 2, 1)

    def _weight(self, part: str, *shape: int) -> Value:
        name = f"{self._name}.{part}"
        return self._graph.weight(name, self._layers.weights.take(name, *shape))


def updated_in_place(layers: Layers, name: str, *shape: int) -> StateSpec:
    """Return a state of the recurrence, which the operator updates in place on a CPU, in a quarter
    of the time. Otherwise it copies it first, and a step of many rows is bound by memory.
    """
    kind = StateKind.REPLACE if layers.target.is_cuda else StateKind.UPDATE
    return StateSpec(name, kind, shape, PRECISE)

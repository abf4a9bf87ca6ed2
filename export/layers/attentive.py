"""Attends from a recurrent network to its own earlier outputs, as one step of a graph.

`models.layers.attentive` is the same in torch and has the equations. What is kept of earlier
outputs is a tape of them all or a window of the last.
"""

from typing import Protocol

from export.graph.value import Value
from export.layers.additive import additive_scores, context_of
from export.layers.basic import Layers
from export.layers.ragged import LOWEST, lengthened, places
from export.layers.telling.telling import Telling
from models.configs.recurrent import RecurrentLanguageModelConfig
from serving.bundle.manifest import AttentionKind, AttentionShape, StateKind, StateSpec


class Past(Protocol):
    """Keeps keys and values of earlier positions, in states."""

    @property
    def states(self) -> tuple[StateSpec, ...]: ...

    def open(self, past_lengths: Value) -> None: ...

    def read(self, query: Value, score: str) -> tuple[Value, Value]: ...

    def append(self, key: Value, value: Value) -> None: ...

    def placed(self, weights: Value, attended: Value) -> Value:
        """Put weights that `read` told where the first `attended` positions are: f32 [batch,
        attended].
        """


class Window:
    """Keeps the last positions, the newest at the end; `export.layers.tape.Tape` keeps all."""

    def __init__(self, layers: Layers, size: int, key_dim: int, value_dim: int) -> None:
        self._layers, self._size, self._key_dim = layers, size, key_dim
        self.keys = layers.state("window_keys", StateKind.REPLACE, size, key_dim)
        self.values = layers.state("window_values", StateKind.REPLACE, size, value_dim)
        self.states = (self.keys, self.values)

    def open(self, past_lengths: Value) -> None:
        graph = self._layers.graph
        self._past_lengths = past_lengths
        self._windows = graph.state_input(self.keys), graph.state_input(self.values)

    def read(self, query: Value, score: str) -> tuple[Value, Value]:
        """Sum the values [batch, value_dim] as weighed by `query` [batch, key_dim] and the layer
        `score`; tell the weights f32 [batch, size]; all zeros before the second position.
        """
        graph, op = self._layers.graph, self._layers.graph.op
        keys, values = self._windows
        scores = additive_scores(self._layers, query, keys, score, self._key_dim)
        ages = graph.constant(range(self._size, 0, -1), "int32")
        is_filled = ages <= self._past_lengths.unsqueeze(1)
        weights = op.Softmax(scores.where(is_filled, LOWEST)).where(is_filled, 0)
        return context_of(weights, values), weights

    def placed(self, weights: Value, attended: Value) -> Value:
        """Put the weights, of ages size, ..., 2, 1, where their positions are."""
        graph = self._layers.graph
        padded = lengthened(weights, attended)
        ages = self._past_lengths.unsqueeze(1) - places(padded)
        is_kept = (ages > 0) & (ages <= self._size)
        place = (graph.constant(self._size, "int32") - ages).maximum(0).minimum(self._size - 1)
        return graph.op.GatherElements(padded, place, axis=1).where(is_kept, 0)[:, :attended]

    def append(self, key: Value, value: Value) -> None:
        """Drop the oldest position for key [batch, key_dim] and value [batch, value_dim]."""
        graph, op = self._layers.graph, self._layers.graph.op
        for state, window, new in zip(self.states, self._windows, (key, value), strict=True):
            newest = new.unsqueeze(1)
            graph.next_state(state, op.Concat(window[:, 1 : self._size], newest, axis=1))


class AttentiveReadout:
    """Reads by `num_parts` of an output [batch, hidden_dim]: key, value and prediction."""

    def __init__(
        self,
        config: RecurrentLanguageModelConfig,
        layers: Layers,
        past: Past,
        num_parts: int,
        attention_dim: int,
    ) -> None:
        self._layers, self._past, self._num_parts = layers, past, num_parts
        self.telling = Telling(layers.graph)
        self._part_dim = config.hidden_dim // num_parts
        self._attention_dim, self._readout_dim = attention_dim, config.embedding_dim
        self.states = past.states

    def build(self, output: Value) -> Value:
        graph = self._layers.graph
        parts = graph.split(output, [self._part_dim] * self._num_parts)
        sizes = [self._attention_dim] * 2
        joined = self._linear(parts[0], ["key", "query"], self._part_dim, sizes)
        key, query = graph.split(joined, sizes)
        self._past.open(graph.input("past_lengths", "int32", ()))
        context, weights = self._past.read(query, "readout.score")
        if self.telling.is_on:
            told = self._past.placed(weights, self.telling.attended())
            self.telling.put(AttentionKind.DECODER, told.unsqueeze(1, 2), AttentionShape(1, 1))
        self._past.append(key, parts[min(1, len(parts) - 1)])
        both = graph.op.Concat(context, parts[-1], axis=-1)
        sizes = [self._readout_dim]
        return self._linear(both, ["combine"], 2 * self._part_dim, sizes).tanh()

    def _linear(self, x: Value, names: list[str], in_dim: int, out_dims: list[int]) -> Value:
        names = [f"readout.{name}" for name in names]
        return self._layers.linear(x, names, in_dim, out_dims, bias=False)

"""A recurrent network's attention over its own earlier outputs, as one step of a graph.

`models.layers.attentive` is the same in torch and has the equations. What is kept of earlier
outputs is a tape of them all or a window of the last.
"""

from typing import Protocol

from export.graph.writer import Value
from export.layers.additive import additive_scores, mix
from export.layers.attention import LOWEST
from export.layers.basic import Layers
from models.configs.language_models.recurrent_lm import RecurrentLanguageModelConfig
from serving.bundle.manifest import StateKind, StateSpec


class Past(Protocol):
    """Keys and values of earlier positions, in states."""

    @property
    def states(self) -> tuple[StateSpec, ...]: ...

    def open(self, past_lengths: Value) -> None: ...

    def read(self, query: Value, score: str) -> tuple[Value, Value]: ...

    def append(self, key: Value, value: Value) -> None: ...


class Window:
    """The last positions, the newest at the end; as `export.layers.tape.Tape`, which keeps all."""

    def __init__(self, layers: Layers, size: int, key_dim: int, value_dim: int) -> None:
        self._layers, self._size, self._key_dim = layers, size, key_dim
        replace, dtype = StateKind.REPLACE, layers.dtype
        self.keys = StateSpec("window_keys", replace, (size, key_dim), dtype)
        self.values = StateSpec("window_values", replace, (size, value_dim), dtype)
        self.states = (self.keys, self.values)

    def open(self, past_lengths: Value) -> None:
        graph = self._layers.graph
        self._past_lengths = past_lengths
        self._windows = graph.state_input(self.keys), graph.state_input(self.values)

    def read(self, query: Value, score: str) -> tuple[Value, Value]:
        """The values mixed [batch, value_dim] as weighed by `query` [batch, key_dim] and the layer
        `score`, and the weights f32 [batch, size]; all zeros before the second position.
        """
        graph, op = self._layers.graph, self._layers.graph.op
        keys, values = self._windows
        scores = additive_scores(self._layers, query, keys, score, self._key_dim)
        ages = graph.constant(range(self._size, 0, -1), "int32")
        is_filled = op.LessOrEqual(ages, op.Unsqueeze(self._past_lengths, graph.ints(1)))
        weights = op.Softmax(op.Where(is_filled, scores, graph.constant(LOWEST, "float32")))
        weights = op.Where(is_filled, weights, graph.constant(0, "float32"))
        return mix(self._layers, weights, values), weights

    def append(self, key: Value, value: Value) -> None:
        """The oldest position makes room for key [batch, key_dim] and value [batch, value_dim]."""
        graph, op = self._layers.graph, self._layers.graph.op
        later = graph.ints(1), graph.ints(self._size), graph.ints(1)  # from, to, axis
        for state, window, new in zip(self.states, self._windows, (key, value), strict=True):
            new = op.Unsqueeze(new, graph.ints(1))
            graph.next_state(state, op.Concat(op.Slice(window, *later), new, axis=1))


class AttentiveReadout:
    """`num_parts` of an output [batch, hidden_dim]: key, value and prediction."""

    def __init__(
        self,
        config: RecurrentLanguageModelConfig,
        layers: Layers,
        past: Past,
        num_parts: int,
        attention_dim: int,
    ) -> None:
        self._layers, self._past, self._num_parts = layers, past, num_parts
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
        context, _ = self._past.read(query, "readout.score")
        self._past.append(key, parts[min(1, len(parts) - 1)])
        both = graph.op.Concat(context, parts[-1], axis=-1)
        sizes = [self._readout_dim]
        return graph.op.Tanh(self._linear(both, ["combine"], 2 * self._part_dim, sizes))

    def _linear(self, x: Value, names: list[str], in_dim: int, out_dims: list[int]) -> Value:
        names = [f"readout.{name}" for name in names]
        return self._layers.linear(x, names, in_dim, out_dims, bias=False)

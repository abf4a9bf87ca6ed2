"""The earlier positions that recurrent networks keep in a step graph: a tape of all keys and
values, or a window of the last ones. Both are read by additive attention.

Each row reads and writes at its own length.
"""

from export.graph.writer import Value
from export.layers.attention import (
    LOWEST,
    additive_scores,
    context_of,
    is_real,
    padded_by,
    positions_from_zero,
    softmax_within,
)
from export.layers.basic import Layers
from serving.bundle.manifest import LENGTH, StateKind

POSITIONS_PER_STEP = 4  # MatMul adds up positions by fours: their number must not change the sums


class Tape:
    """Keys and values of all positions, in the states `{name}_keys` and `{name}_values`."""

    def __init__(self, layers: Layers, name: str, key_dim: int, value_dim: int) -> None:
        self._layers, self._key_dim = layers, key_dim
        self.keys = layers.state(f"{name}_keys", StateKind.APPEND, LENGTH, key_dim)
        self.values = layers.state(f"{name}_values", StateKind.APPEND, LENGTH, value_dim)
        self.states = (self.keys, self.values)

    def open(self, past_lengths: Value) -> None:
        """Declare the inputs; `past_lengths` int32 [batch] positions have been written."""
        graph = self._layers.graph
        self._past_lengths = past_lengths
        self._tapes = graph.state_input(self.keys), graph.state_input(self.values)

    def read(self, query: Value, score: str) -> tuple[Value, Value]:
        """Return the values [batch, value_dim] weighed by `query` [batch, key_dim] and the layer
        `score`, and the weights f32 [batch, length]. All are zeros where nothing is written.
        """
        keys, values = self._cut_to_longest()
        scores = additive_scores(self._layers, query, keys, score, self._key_dim)
        within = is_real(scores, self._past_lengths)
        weights = softmax_within(scores, within).where(within, 0)  # 0 / 0 where nothing is written
        return context_of(weights, values), weights

    def weights_by_position(self, weights: Value, attended: Value) -> Value:
        """Cut or pad the weights that `read` returned to the first positions: f32 [batch,
        attended].
        """
        return padded_by(weights, attended)[:, :attended]

    def append(self, key: Value, value: Value) -> None:
        """Write key [batch, key_dim] and value [batch, value_dim] in place."""
        graph = self._layers.graph
        place = _places(self._past_lengths)
        for state, tape, new in zip(self.states, self._tapes, (key, value), strict=True):
            graph.next_state(state, graph.op.ScatterND(tape, place, new))

    def _cut_to_longest(self) -> tuple[Value, Value]:
        """Cut both at the longest row's end. On CUDA return all, as shapes are fixed there."""
        keys, values = self._tapes
        if self._layers.target.is_cuda:
            return keys, values
        step = self._layers.graph.constant(POSITIONS_PER_STEP, "int32")
        longest = self._past_lengths.max(0, keepdims=True)
        end = ((longest / step + 1) * step).cast("int64")
        return keys[:, :end], values[:, :end]


def _places(past_lengths: Value) -> Value:
    """Return row and position of what each row writes next: int64 [batch, 2]."""
    op, graph = past_lengths.graph.op, past_lengths.graph
    ones = op.Equal(past_lengths, past_lengths).cast("int64")
    rows = op.CumSum(ones, graph.constant(0, "int64")) - 1
    positions = past_lengths.cast("int64")
    return op.Concat(rows.unsqueeze(1), positions.unsqueeze(1), axis=1)


class TapeWindow:
    """Keys and values of the last positions, the newest at the end."""

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
        """Return the values [batch, value_dim] weighed by `query` [batch, key_dim] and the layer
        `score`, and the weights f32 [batch, size]. All are zeros before the second position.
        """
        graph, op = self._layers.graph, self._layers.graph.op
        keys, values = self._windows
        scores = additive_scores(self._layers, query, keys, score, self._key_dim)
        ages = graph.constant(range(self._size, 0, -1), "int32")
        is_filled = ages <= self._past_lengths.unsqueeze(1)
        weights = op.Softmax(scores.where(is_filled, LOWEST)).where(is_filled, 0)
        return context_of(weights, values), weights

    def weights_by_position(self, weights: Value, attended: Value) -> Value:
        """Move the weights, of ages size, ..., 2, 1, to their positions: f32 [batch, attended]."""
        graph = self._layers.graph
        padded = padded_by(weights, attended)
        ages = self._past_lengths.unsqueeze(1) - positions_from_zero(padded)
        is_kept = (ages > 0) & (ages <= self._size)
        place = (graph.constant(self._size, "int32") - ages).maximum(0).minimum(self._size - 1)
        return graph.op.GatherElements(padded, place, axis=1).where(is_kept, 0)[:, :attended]

    def append(self, key: Value, value: Value) -> None:
        """Drop the oldest position and add key [batch, key_dim] and value [batch, value_dim]."""
        graph, op = self._layers.graph, self._layers.graph.op
        for state, window, new in zip(self.states, self._windows, (key, value), strict=True):
            newest = new.unsqueeze(1)
            graph.next_state(state, op.Concat(window[:, 1 : self._size], newest, axis=1))

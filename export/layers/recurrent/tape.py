"""Keeps a tape in a step graph: keys and values of all positions, read by additive attention.

Each row reads and writes at its own length. `models.layers.tape` is the same in torch.
"""

from export.graph.value import Value
from export.layers.additive import additive_scores, context_of
from export.layers.basic import Layers
from export.layers.ragged import is_real, lengthened, softmax_within
from serving.bundle.manifest import LENGTH, StateKind

POSITIONS_PER_STEP = 4  # MatMul adds up positions by fours: their number must not change the sums


class Tape:
    """Names the states `{name}_keys` and `{name}_values`, which the engine keeps."""

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
        """Sum the values [batch, value_dim] as weighed by `query` [batch, key_dim] and the layer
        `score`; tell the weights f32 [batch, length]; all zeros where nothing is written.
        """
        keys, values = self._written()
        scores = additive_scores(self._layers, query, keys, score, self._key_dim)
        within = is_real(scores, self._past_lengths)
        weights = softmax_within(scores, within).where(within, 0)  # 0 / 0 where nothing is written
        return context_of(weights, values), weights

    def placed(self, weights: Value, attended: Value) -> Value:
        """Cut or lengthen the weights that `read` told to the first positions: f32 [batch,
        attended].
        """
        return lengthened(weights, attended)[:, :attended]

    def append(self, key: Value, value: Value) -> None:
        """Write key [batch, key_dim] and value [batch, value_dim] in place."""
        graph = self._layers.graph
        place = _places(self._past_lengths)
        for state, tape, new in zip(self.states, self._tapes, (key, value), strict=True):
            graph.next_state(state, graph.op.ScatterND(tape, place, new))

    def _written(self) -> tuple[Value, Value]:
        """Cut both at the longest row's end. On CUDA give all there is: shapes are fixed there."""
        keys, values = self._tapes
        if self._layers.target.is_cuda:
            return keys, values
        step = self._layers.graph.constant(POSITIONS_PER_STEP, "int32")
        longest = self._past_lengths.max(0, keepdims=True)
        end = ((longest / step + 1) * step).cast("int64")
        return keys[:, :end], values[:, :end]


def _places(past_lengths: Value) -> Value:
    """Tell row and position of what each row writes next: int64 [batch, 2]."""
    op, graph = past_lengths.graph.op, past_lengths.graph
    ones = op.Equal(past_lengths, past_lengths).cast("int64")
    rows = op.CumSum(ones, graph.constant(0, "int64")) - 1
    positions = past_lengths.cast("int64")
    return op.Concat(rows.unsqueeze(1), positions.unsqueeze(1), axis=1)

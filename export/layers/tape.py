"""A tape in a step graph: keys and values of all positions so far, read by additive attention.

Each row reads and writes at its own length. `models.layers.tape` is the same in torch.
"""

from export.graph.writer import GraphWriter, Value
from export.layers.additive import additive_scores, mix
from export.layers.attention import is_real, ragged_softmax
from export.layers.basic import Layers
from serving.bundle.manifest import LENGTH, StateKind, StateSpec

POSITIONS_PER_STEP = 4  # MatMul adds up positions by fours: their number must not change the sums


class Tape:
    """The states `{name}_keys` and `{name}_values`, which the engine keeps."""

    def __init__(self, layers: Layers, name: str, key_dim: int, value_dim: int) -> None:
        self._layers, self._key_dim = layers, key_dim
        append, dtype = StateKind.APPEND, layers.dtype
        self.keys = StateSpec(f"{name}_keys", append, (LENGTH, key_dim), dtype)
        self.values = StateSpec(f"{name}_values", append, (LENGTH, value_dim), dtype)
        self.states = (self.keys, self.values)

    def open(self, past_lengths: Value) -> None:
        """Declare the inputs; `past_lengths` int32 [batch] positions have been written."""
        graph = self._layers.graph
        self._past_lengths = past_lengths
        self._tapes = graph.state_input(self.keys), graph.state_input(self.values)

    def read(self, query: Value, score: str) -> tuple[Value, Value]:
        """The values mixed [batch, value_dim] as weighed by `query` [batch, key_dim] and the layer
        `score`, and the weights f32 [batch, length]; all zeros where nothing is written.
        """
        graph, op = self._layers.graph, self._layers.graph.op
        keys, values = self._written()
        scores = additive_scores(self._layers, query, keys, score, self._key_dim)
        within = is_real(graph, scores, self._past_lengths)
        weights = ragged_softmax(graph, scores, within)  # 0 / 0 where nothing is written
        weights = op.Where(within, weights, graph.constant(0, "float32"))
        return mix(self._layers, weights, values), weights

    def append(self, key: Value, value: Value) -> None:
        """Write key [batch, key_dim] and value [batch, value_dim] in place."""
        graph = self._layers.graph
        place = _places(graph, self._past_lengths)
        for state, tape, new in zip(self.states, self._tapes, (key, value), strict=True):
            graph.next_state(state, graph.op.ScatterND(tape, place, new))

    def _written(self) -> tuple[Value, Value]:
        """Both up to the longest row's end. On CUDA all there is: shapes are fixed there."""
        keys, values = self._tapes
        if self._layers.dtype != "float32":
            return keys, values
        graph, op = self._layers.graph, self._layers.graph.op
        step = graph.constant(POSITIONS_PER_STEP, "int32")
        longest = op.ReduceMax(self._past_lengths, graph.ints(0), keepdims=1)
        rounded = op.Mul(op.Add(op.Div(longest, step), graph.constant(1, "int32")), step)
        span = (graph.ints(0), op.Cast(rounded, to=7), graph.ints(1))  # from, to, axis
        return op.Slice(keys, *span), op.Slice(values, *span)


def _places(graph: GraphWriter, past_lengths: Value) -> Value:
    """Row and position of what each row writes next: int64 [batch, 2]."""
    op, axis = graph.op, graph.ints(1)
    ones = op.Cast(op.Equal(past_lengths, past_lengths), to=7)
    rows = op.Sub(op.CumSum(ones, graph.constant(0, "int64")), graph.constant(1, "int64"))
    positions = op.Cast(past_lengths, to=7)
    return op.Concat(op.Unsqueeze(rows, axis), op.Unsqueeze(positions, axis), axis=1)

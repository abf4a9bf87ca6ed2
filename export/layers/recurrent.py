"""Whole layers of cells (`models.layers.recurrent`): a source read by the encode graph, and one
token further in the step graph.

Sources go through ONNX's own GRU or LSTM, in floats, and with other cells through a loop. CUDA has
these two operators in fp32 and fp16; in bf16 they stand in fp32 between two casts.
"""

from collections.abc import Sequence

import numpy as np

from export.graph.writer import Array, Value, element_type
from export.layers.attention import is_real
from export.layers.basic import Layers
from export.layers.cells import STEPS, CellStep, State, advance, cell_states
from serving.bundle.manifest import StateSpec

# Blocks in ONNX's order: LSTM input, output, forget, new; GRU update, reset, new. Not RNN: what it
# gives a row depends on how many there are.
ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}


class RecurrentLayers:
    """The module `name` of `num_layers` layers, whose weights are named as torch.nn.GRU's."""

    def __init__(
        self,
        layers: Layers,
        name: str,
        cell: str,
        input_dim: int,
        hidden_dim: int,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
    ) -> None:
        self._layers, self._graph = layers, layers.graph
        self._name, self._cell, self._dim = name, cell, hidden_dim
        self._ends = ("", "_reverse") if bidirectional else ("",)
        above = hidden_dim * len(self._ends)
        self._input_dims = [input_dim] + [above] * (num_layers - 1)

    @property
    def _is_cast(self) -> bool:
        return self._layers.dtype == "bfloat16"

    @property
    def states(self) -> list[list[StateSpec]]:
        """Of each layer, as the engine keeps them."""
        return cell_states(self._cell, self._dim, self._layers.dtype, len(self._input_dims))

    def step(self, x: Value) -> Value:
        """One token further, x [batch, input_dim] -> the top layer's output [batch, hidden_dim]."""
        for depth, states in enumerate(self.states):
            step, gates = self._project(x, f"l{depth}", self._input_dims[depth])
            x = advance(self._layers, step, gates, states)
        return x

    def encode(self, x: Value, lengths: Value) -> tuple[Value, list[State]]:
        """x [batch, source, input_dim], lengths int32 [batch] -> the top layer's outputs [batch,
        source, directions * hidden_dim] and each layer's and direction's state at its rows' ends.

        Outputs beyond a row's end are zeros.
        """
        run = self._operator if self._cell in ORDERS else self._loop
        last: list[State] = []
        for depth in range(len(self._input_dims)):
            x, states = run(x, lengths, depth)
            last += states
        return x, last

    def _operator(self, x: Value, lengths: Value, depth: int) -> tuple[Value, list[State]]:
        """x [batch, source, features] -> outputs [batch, source, directions * hidden], states."""
        op, graph = self._graph.op, self._graph
        num_states = STEPS[self._cell].num_states
        options = {"linear_before_reset": 1} if self._cell == "gru" else {}
        if self._is_cast:
            x = op.Cast(x, to=element_type("float32"))
        found = getattr(op, self._cell.upper())(
            op.Transpose(x, perm=[1, 0, 2]),
            *self._operator_weights(depth),
            lengths,
            hidden_size=self._dim,
            direction="bidirectional" if len(self._ends) == 2 else "forward",
            **options,
            _outputs=1 + num_states,
        )
        if self._is_cast:
            found = [op.Cast(each, to=element_type(self._layers.dtype)) for each in found]
        outputs, *ends = found
        joined = op.Transpose(outputs, perm=[2, 0, 1, 3])  # [batch, source, direction, hidden]
        directions = [graph.constant(i, "int64") for i in range(len(self._ends))]
        states = [tuple(op.Gather(end, i, axis=0) for end in ends) for i in directions]
        return op.Reshape(joined, graph.ints(0, 0, self._dim * len(self._ends))), states

    def _operator_weights(self, depth: int) -> list[Value]:
        """ONNX's W, R and B [direction, ...]."""
        arrays = zip(*(self._ordered(f"l{depth}{end}", depth) for end in self._ends), strict=True)
        name = f"{self._name}.l{depth}"
        dtype = "float32" if self._is_cast else self._layers.dtype
        return [
            self._graph.weight(f"{name}.{part}", np.stack(each).astype(dtype))
            for part, each in zip(("W", "R", "B"), arrays, strict=True)
        ]

    def _ordered(self, layer: str, depth: int) -> tuple[Array, Array, Array]:
        """The weights of a direction, their blocks in ONNX's order."""
        blocks = [np.arange(self._dim) + i * self._dim for i in ORDERS[self._cell]]
        order = np.concatenate(blocks)
        weight, bias, recurrent, recurrent_bias = (
            array[order] for array in self._weights(layer, self._input_dims[depth])
        )
        return weight, recurrent, np.concatenate([bias, recurrent_bias])

    def _loop(self, x: Value, lengths: Value, depth: int) -> tuple[Value, list[State]]:
        """The same, one position after the other."""
        runs = [self._run(x, lengths, f"l{depth}{end}", depth) for end in self._ends]
        outputs = [each for each, _ in runs]
        joined = outputs[0] if len(outputs) == 1 else self._graph.op.Concat(*outputs, axis=-1)
        return joined, [state for _, state in runs]

    def _run(self, x: Value, lengths: Value, layer: str, depth: int) -> tuple[Value, State]:
        """One direction; a row that has ended stays what it is."""
        graph, op = self._graph, self._graph.op
        directed = self._directed(x, lengths, layer)
        step, gates = self._project(directed, layer, self._input_dims[depth])
        any_gate = op.Gather(gates, graph.constant(0, "int64"), axis=2)
        if self._is_cast:  # CUDA compares no bfloat16
            any_gate = op.Cast(any_gate, to=element_type("float32"))
        is_on = op.Unsqueeze(is_real(graph, any_gate, lengths), graph.ints(2))
        gates_in_time, is_on_in_time = (op.Transpose(v, perm=[1, 0, 2]) for v in (gates, is_on))

        def turn(position: Value, hidden: Value) -> list[Value]:
            (following,) = step(op.Gather(gates_in_time, position, axis=0), (hidden,))
            kept = op.Where(op.Gather(is_on_in_time, position, axis=0), following, hidden)
            return [kept, op.Identity(kept)]

        times = op.Shape(x, start=1, end=2)
        begin = [self._zeros(gates)]
        last, outputs = graph.loop(times, begin, self._layers.dtype, turn, num_collected=1)
        outputs = op.Transpose(outputs, perm=[1, 0, 2])
        # Between a Transpose and a MatMul something must stand: in fp16, ONNX Runtime fuses the two
        # and then crashes on the loop.
        outputs = op.Where(is_on, outputs, graph.constant(0, self._layers.dtype))
        return self._directed(outputs, lengths, layer), (last,)

    def _zeros(self, gates: Value) -> Value:
        """[batch, hidden], as many rows as gates [batch, source, gates * hidden] have."""
        op, graph = self._graph.op, self._graph
        first = op.Gather(gates, graph.constant(0, "int64"), axis=1)
        some = op.Slice(first, graph.ints(0), graph.ints(self._dim), graph.ints(1))
        return op.Sub(some, some)

    def _directed(self, x: Value, lengths: Value, layer: str) -> Value:
        """Rows of x [batch, source, features] as this direction reads them."""
        if not layer.endswith("_reverse"):
            return x
        if not self._is_cast:
            return reverse_rows(self._layers, x, lengths)
        op = self._graph.op  # ONNX reverses no bfloat16
        wide = reverse_rows(self._layers, op.Cast(x, to=element_type("float32")), lengths)
        return op.Cast(wide, to=element_type("bfloat16"))

    def _project(self, x: Value, layer: str, input_dim: int) -> tuple[CellStep, Value]:
        """The cell of a layer, and its projected input."""
        weight, bias, recurrent, recurrent_bias = self._weights(layer, input_dim)
        name = f"{self._name}.{layer}"
        step = STEPS[self._cell](self._layers, f"{name}.recurrent", recurrent, recurrent_bias)
        return step, self._layers.project(x, f"{name}.input", weight, bias)

    def _weights(self, layer: str, input_dim: int) -> list[Array]:
        """Input weight and bias, recurrent weight and bias."""
        kind, take = STEPS[self._cell], self._layers.weights.take
        gates, recurrent = kind.num_gates * self._dim, kind.num_recurrent * self._dim
        shapes: Sequence[tuple[str, tuple[int, ...]]] = (
            ("weight_ih", (gates, input_dim)),
            ("bias_ih", (gates,)),
            ("weight_hh", (recurrent, self._dim)),
            ("bias_hh", (recurrent,)),
        )
        return [take(f"{self._name}.{part}_{layer}", *shape) for part, shape in shapes]


def reverse_rows(layers: Layers, x: Value, lengths: Value) -> Value:
    """Each row of x [batch, source, ...] backwards, up to its own length."""
    whole = layers.op.Cast(lengths, to=7)
    return layers.op.ReverseSequence(x, whole, batch_axis=0, time_axis=1)

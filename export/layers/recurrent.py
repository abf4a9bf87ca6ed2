"""Recurrent cells in graphs: over whole sources in `encode`, and one token further in `step`.

Their equations are in `models.layers.equations`, and `models.layers.recurrent` is their torch side.
Sources go through ONNX's own GRU or LSTM, in floats, and with other cells through a loop. CUDA has
these two operators in fp32 and fp16; in bf16 they run in fp32 between two casts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from export.graph.cell_functions import GRU_CELL, GRU_RESET, GRU_UPDATE, LSTM_CELL
from export.graph.functions import parse_function
from export.graph.writer import Array, Value
from export.layers.attention import is_real
from export.layers.basic import Layers
from models.configs.recurrent import RecurrentConfig
from models.layers.equations import CELLS, READOUTS
from serving.bundle.manifest import StateKind, StateSpec


@dataclass(frozen=True)
class Operator:
    """ONNX's operator of a cell, and the order of its blocks: LSTM input, output, forget, new; GRU
    update, reset, new.
    """

    name: str
    order: tuple[int, ...]
    options: dict[str, int]


# Not RNN: its result for a row depends on the number of rows.
OPERATORS = {
    "lstm": Operator("LSTM", (0, 3, 1, 2), {}),
    "gru": Operator("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "gru-reset-before": Operator("GRU", (1, 0, 2), {"linear_before_reset": 0}),
}


State = tuple[Value, ...]  # hidden [batch, hidden_dim]; LSTM: and memory cell, as large


class CellStep:
    """One cell with its recurrent weight [num_recurrent * hidden, hidden] and bias."""

    def __init__(self, layers: Layers, cell: str, name: str, weight: Array, bias: Array) -> None:
        self._layers, self._cell, self._name = layers, CELLS[cell], name
        functions: dict[str, Callable[..., State]] = {
            "lstm": self._lstm,
            "gru": self._gru,
            "gru-reset-before": self._gru_before,
        }
        self._function = functions.get(cell) if layers.dtype == "float32" else None
        self._weight, self._bias, self._dim = weight, bias, weight.shape[1]

    def __call__(self, x: Value, state: State) -> State:
        """Return the next state, given x [batch, num_gates * hidden], the projected input."""
        if self._function is not None:
            return self._function(x, *state)
        following: State = self._cell.step(x, state, self)
        return following

    def _lstm(self, x: Value, hidden: Value, memory: Value) -> State:
        return self._call(LSTM_CELL, x, self.project_state(hidden, 0, 4), memory)

    def _gru(self, x: Value, hidden: Value) -> State:
        return self._call(GRU_CELL, x, self.project_state(hidden, 0, 3), hidden)

    def _gru_before(self, x: Value, hidden: Value) -> State:
        u = self.project_state(hidden, 0, 2)
        (reset,) = self._call(GRU_RESET, x, u, hidden)
        return self._call(GRU_UPDATE, x, u, self.project_state(reset, 2, 3), hidden)

    def _call(self, function: str, *inputs: Value) -> State:
        types = [inputs[0].dtype] * len(parse_function(function).outputs)
        return tuple(self._layers.graph.call(parse_function(function), *inputs, types=types))

    def project_state(self, hidden: Value, first: int, last: int) -> Value:
        rows = slice(first * self._dim, last * self._dim)
        name = f"{self._name}.{first}"
        return self._layers.project(hidden, name, self._weight[rows], self._bias[rows])

    def split(self, x: Value, *blocks: int) -> list[Value]:
        return self._layers.graph.split(x, [n * self._dim for n in blocks])


class RecurrentLayers:
    """The module `name` of `num_layers` layers; weights are named as torch.nn.GRU's."""

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
        self._common_dtype = layers.target.common_dtype
        self._ends = ("", "_reverse") if bidirectional else ("",)
        above = hidden_dim * len(self._ends)
        self._input_dims = [input_dim] + [above] * (num_layers - 1)

    @property
    def states(self) -> list[list[StateSpec]]:
        """The states of each layer."""
        return cell_states(self._cell, self._dim, self._layers.dtype, len(self._input_dims))

    def step(self, x: Value) -> Value:
        """Read one token x [batch, input_dim]. Return the top layer's output."""
        for depth, states in enumerate(self.states):
            step, gates = self._project(x, f"l{depth}", self._input_dims[depth])
            x = advance(self._layers, step, gates, states)
        return x

    def encode(self, x: Value, lengths: Value) -> tuple[Value, list[State]]:
        """Read x [batch, source, input_dim] of lengths int32 [batch].

        Returns the top layer's outputs [batch, source, directions * hidden_dim], zeros beyond a
        row's end, and the states of each layer and direction at the rows' ends.
        """
        run = self._operator if self._cell in OPERATORS else self._loop
        last: list[State] = []
        for depth in range(len(self._input_dims)):
            x, states = run(x, lengths, depth)
            last += states
        return x, last

    def _operator(self, x: Value, lengths: Value, depth: int) -> tuple[Value, list[State]]:
        """Run ONNX's operator over x [batch, source, features]: outputs [batch, source, directions
        * dim], states.
        """
        op = self._graph.op
        num_states, kind = CELLS[self._cell].num_states, OPERATORS[self._cell]
        results = getattr(op, kind.name)(
            x.cast(self._common_dtype).transpose(1, 0, 2),
            *self._operator_weights(depth),
            lengths,
            hidden_size=self._dim,
            direction="bidirectional" if len(self._ends) == 2 else "forward",
            **kind.options,
            _outputs=1 + num_states,
        )
        outputs, *ends = [value.cast(self._layers.dtype) for value in results]
        joined = outputs.transpose(2, 0, 1, 3)  # [batch, source, direction, hidden]
        states = [tuple(end[i] for end in ends) for i in range(len(self._ends))]
        return joined.reshape(0, 0, self._dim * len(self._ends)), states

    def _operator_weights(self, depth: int) -> list[Value]:
        """Return ONNX's W, R and B [direction, ...]."""
        arrays = zip(
            *(self._order_blocks(f"l{depth}{end}", depth) for end in self._ends), strict=True
        )
        name = f"{self._name}.l{depth}"
        return [
            self._graph.weight(f"{name}.{part}", np.stack(array).astype(self._common_dtype))
            for part, array in zip(("W", "R", "B"), arrays, strict=True)
        ]

    def _order_blocks(self, layer: str, depth: int) -> tuple[Array, Array, Array]:
        """Return the weights of a direction with their blocks in ONNX's order."""
        blocks = [np.arange(self._dim) + i * self._dim for i in OPERATORS[self._cell].order]
        order = np.concatenate(blocks)
        weight, bias, recurrent, recurrent_bias = (
            array[order] for array in self._weights(layer, self._input_dims[depth])
        )
        return weight, recurrent, np.concatenate([bias, recurrent_bias])

    def _loop(self, x: Value, lengths: Value, depth: int) -> tuple[Value, list[State]]:
        """Do what the operator does, one position after the other."""
        runs = [self._run(x, lengths, f"l{depth}{end}", depth) for end in self._ends]
        outputs = [output for output, _ in runs]
        joined = outputs[0] if len(outputs) == 1 else self._graph.op.Concat(*outputs, axis=-1)
        return joined, [state for _, state in runs]

    def _run(self, x: Value, lengths: Value, layer: str, depth: int) -> tuple[Value, State]:
        """Read in one direction. The state of a row that has ended stays unchanged."""
        graph, op = self._graph, self._graph.op
        directed = self._order_rows(x, lengths, layer)
        step, gates = self._project(directed, layer, self._input_dims[depth])
        any_gate = gates[:, :, 0].cast(self._common_dtype)
        is_real_token = is_real(any_gate, lengths).unsqueeze(2)
        gates_in_time, is_real_in_time = gates.transpose(1, 0, 2), is_real_token.transpose(1, 0, 2)

        def write_iteration(position: Value, hidden: Value) -> list[Value]:
            (following,) = step(gates_in_time[position], (hidden,))
            next_hidden = following.where(is_real_in_time[position], hidden)
            return [next_hidden, op.Identity(next_hidden)]

        trip_count, begin = x.length(1), [self._zeros(gates)]
        last, outputs = graph.loop(
            trip_count, begin, self._layers.dtype, write_iteration, num_scan_outputs=1
        )
        outputs = outputs.transpose(1, 0, 2)
        # This separates a Transpose from a MatMul: in fp16 ONNX Runtime would fuse the two and
        # crash on the loop.
        outputs = outputs.where(is_real_token, 0)
        return self._order_rows(outputs, lengths, layer), (last,)

    def _zeros(self, gates: Value) -> Value:
        """Return zeros [batch, hidden] for gates [batch, source, gates * hidden]."""
        some = gates[:, 0][:, : self._dim]
        return some - some

    def _order_rows(self, x: Value, lengths: Value, layer: str) -> Value:
        """Return rows of x [batch, source, features] in the order that this direction reads."""
        if not layer.endswith("_reverse"):
            return x
        return reverse_rows(x.cast(self._common_dtype), lengths).cast(x.dtype)

    def _project(self, x: Value, layer: str, input_dim: int) -> tuple[CellStep, Value]:
        """Return the cell of a layer, and its projected input."""
        weight, bias, recurrent, recurrent_bias = self._weights(layer, input_dim)
        name = f"{self._name}.{layer}"
        step = CellStep(self._layers, self._cell, f"{name}.recurrent", recurrent, recurrent_bias)
        return step, self._layers.project(x, f"{name}.input", weight, bias)

    def _weights(self, layer: str, input_dim: int) -> list[Array]:
        """Return input weight and bias, recurrent weight and bias."""
        kind, take = CELLS[self._cell], self._layers.weights.take
        gates, recurrent = kind.num_gates * self._dim, kind.num_recurrent * self._dim
        shapes: Sequence[tuple[str, tuple[int, ...]]] = (
            ("weight_ih", (gates, input_dim)),
            ("bias_ih", (gates,)),
            ("weight_hh", (recurrent, self._dim)),
            ("bias_hh", (recurrent,)),
        )
        return [take(f"{self._name}.{part}_{layer}", *shape) for part, shape in shapes]


def reverse_rows(x: Value, lengths: Value) -> Value:
    """Reverse each row of x [batch, source, ...] up to its own length."""
    return x.graph.op.ReverseSequence(x, lengths.cast("int64"), batch_axis=0, time_axis=1)


def cell_step(layers: Layers, cell: str, name: str, hidden_dim: int) -> CellStep:
    """Return the cell whose recurrent weight and bias are those of the linear layer `name`."""
    take, rows = layers.weights.take, CELLS[cell].num_recurrent * hidden_dim
    weight, bias = take(f"{name}.weight", rows, hidden_dim), take(f"{name}.bias", rows)
    return CellStep(layers, cell, name, weight, bias)


def cell_states(cell: str, hidden_dim: int, dtype: str, num_layers: int) -> list[list[StateSpec]]:
    """Return the states of each layer: `hidden.0`, and of an LSTM `cell.0`."""
    names = ("hidden", "cell")[: CELLS[cell].num_states]
    return [
        [StateSpec(f"{name}.{n}", StateKind.REPLACE, (hidden_dim,), dtype) for name in names]
        for n in range(num_layers)
    ]


def advance(layers: Layers, step: CellStep, x: Value, states: Sequence[StateSpec]) -> Value:
    """Read the states, write the next ones, and return the cell's output [batch, hidden_dim]."""
    following = step(x, read_states(layers, states))
    write_states(layers, states, following)
    return following[0]


def read_states(layers: Layers, states: Sequence[StateSpec]) -> State:
    return tuple(layers.graph.state_input(state) for state in states)


def write_states(layers: Layers, states: Sequence[StateSpec], following: State) -> None:
    for state, value in zip(states, following, strict=True):
        layers.graph.next_state(state, value)


Kind = Literal["maxout", "tanh"]


class ContextDecoder:
    """The decoder step of Cho and Bahdanau: a cell and a readout, both fed by the last word and a
    context.

    Projections of one input, for the cell's gates and for the readout, are one matrix product.
    Weights are those of the modules `decoder` and `readout`.
    """

    def __init__(
        self, config: RecurrentConfig, layers: Layers, context_dim: int, readout: Kind
    ) -> None:
        self._config, self._layers, self._context_dim = config, layers, context_dim
        self._readout = READOUTS[readout]
        self._readout_dim = config.readout_dim * self._readout.width
        self._gates = CELLS[config.cell].num_gates * config.hidden_dim
        [self.states] = cell_states(config.cell, config.hidden_dim, layers.dtype, 1)

    @property
    def feed_dim(self) -> int:
        """The size of what a word or a context feeds: gates, then readout."""
        return self._gates + self._readout_dim

    def project_token(self, embedded: Value) -> Value:
        """Project [batch, embedding_dim] to [batch, feed_dim]."""
        bias = self._layers.weights.take("decoder.input.bias", self._gates)
        padded = np.pad(bias, (0, self._readout_dim))
        dim = self._config.embedding_dim
        return self._project(embedded, "decoder.input", "readout.embedding", dim, padded)

    def project_context(self, context: Value) -> Value:
        """Project [batch, context_dim] to [batch, feed_dim]."""
        names = "decoder.context", "readout.context"
        return self._project(context, *names, self._context_dim)

    def open(self) -> State:
        """Declare the states as inputs; the first is the hidden one [batch, hidden_dim]."""
        return read_states(self._layers, self.states)

    def step(self, feed: Value, state: State) -> Value:
        """Return the readout [batch, readout_dim], given what word and context feed [batch,
        feed_dim].
        """
        gates, readout = self._layers.graph.split(feed, [self._gates, self._readout_dim])
        config = self._config
        cell = cell_step(self._layers, config.cell, "decoder.hidden", config.hidden_dim)
        following = cell(gates, state)
        write_states(self._layers, self.states, following)
        total = self._project_state(following[0]) + readout
        parts = self._layers.graph.split(total, [config.readout_dim] * self._readout.width)
        activated: Value = self._readout.activate(*parts)
        return activated

    def _project_state(self, hidden: Value) -> Value:
        bias = self._layers.weights.take("readout.state.bias", self._readout_dim)
        weight = self._readout_weight("readout.state", self._config.hidden_dim)
        return self._layers.project(hidden, "readout.state", weight, self._split_pairs(bias))

    def _project(
        self, x: Value, gates: str, readout: str, in_dim: int, bias: Array | None = None
    ) -> Value:
        weight = self._layers.weights.take(f"{gates}.weight", self._gates, in_dim)
        joined = np.concatenate([weight, self._readout_weight(readout, in_dim)])
        return self._layers.project(x, f"{gates}+{readout}", joined, bias)

    def _readout_weight(self, name: str, in_dim: int) -> Array:
        return self._split_pairs(
            self._layers.weights.take(f"{name}.weight", self._readout_dim, in_dim)
        )

    def _split_pairs(self, rows: Array) -> Array:
        """Put maxout's pairs, 0 and 1, 2 and 3, ..., in two halves: 0, 2, ... before 1, 3, ..."""
        width = self._readout.width
        return np.concatenate([rows[i::width] for i in range(width)])

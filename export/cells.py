"""The recurrent cells of `models.layers.cells`, one step of each as nodes of a graph."""

from typing import ClassVar

from export.graph import Array, Value
from export.layers import Layers
from serving.bundle.manifest import StateKind, StateSpec

State = tuple[Value, ...]  # hidden [batch, hidden_dim]; LSTM: and memory cell, as large


class CellStep:
    """One cell with its recurrent weight [num_recurrent * hidden_dim, hidden_dim] and bias.

    `num_direct`: how many blocks of that weight, the first ones, multiply the hidden state itself;
    their product may be taken along with other projections of it, and given to `advance`.
    """

    num_gates: ClassVar[int] = 3
    num_recurrent: ClassVar[int] = 3
    num_direct: ClassVar[int] = 1
    num_states: ClassVar[int] = 1

    def __init__(self, layers: Layers, name: str, weight: Array, bias: Array) -> None:
        self.layers, self.op, self.name = layers, layers.op, name
        self.weight, self.bias, self.dim = weight, bias, weight.shape[1]

    def __call__(self, x: Value, state: State) -> State:
        """x [batch, num_gates * hidden_dim], the projected input -> the next state."""
        return self.advance(x, self.recur(state[0], 0, self.num_direct), state)

    def advance(self, x: Value, direct: Value, state: State) -> State:
        """As a call, with the direct blocks' product [batch, num_direct * hidden_dim]."""
        raise NotImplementedError

    def recur(self, x: Value, first: int, last: int) -> Value:
        """Blocks first..last-1 of the recurrent weight and bias, of x [batch, hidden_dim]."""
        rows = slice(first * self.dim, last * self.dim)
        name = f"{self.name}.{first}-{last}"
        return self.layers.project(x, name, self.weight[rows], self.bias[rows])

    def split(self, x: Value, *blocks: int) -> list[Value]:
        return self.layers.graph.split(x, [count * self.dim for count in blocks])


class RnnStep(CellStep):
    num_gates = num_recurrent = 1

    def advance(self, x: Value, direct: Value, state: State) -> State:
        return (self.op.Tanh(self.op.Add(x, direct)),)


class LstmStep(CellStep):
    num_gates = num_recurrent = num_direct = 4
    num_states = 2

    def advance(self, x: Value, direct: Value, state: State) -> State:
        op = self.op
        admit, keep, new, emit = self.split(op.Add(x, direct), 1, 1, 1, 1)
        fresh = op.Mul(op.Sigmoid(admit), op.Tanh(new))
        memory = op.Add(op.Mul(op.Sigmoid(keep), state[1]), fresh)
        return op.Mul(op.Sigmoid(emit), op.Tanh(memory)), memory


class GruStep(CellStep):
    num_direct = 3

    def advance(self, x: Value, direct: Value, state: State) -> State:
        op, (hidden,) = self.op, state
        x_gates, x_new = self.split(x, 2, 1)
        h_gates, h_new = self.split(direct, 2, 1)
        reset, update = self.split(op.Sigmoid(op.Add(x_gates, h_gates)), 1, 1)
        new = op.Tanh(op.Add(x_new, op.Mul(reset, h_new)))
        return (op.Add(new, op.Mul(update, op.Sub(hidden, new))),)


class Mut1Step(CellStep):
    num_recurrent = 2

    def advance(self, x: Value, direct: Value, state: State) -> State:
        op, (hidden,) = self.op, state
        x_reset, x_update, x_new = self.split(x, 1, 1, 1)
        reset = op.Sigmoid(op.Add(x_reset, direct))
        new = op.Tanh(op.Add(self.recur(op.Mul(reset, hidden), 1, 2), op.Tanh(x_new)))
        return (op.Add(hidden, op.Mul(op.Sigmoid(x_update), op.Sub(new, hidden))),)


class Mut2Step(CellStep):
    num_direct = 2

    def advance(self, x: Value, direct: Value, state: State) -> State:
        op, (hidden,) = self.op, state
        x_gates, x_new = self.split(x, 2, 1)
        reset, update = self.split(op.Sigmoid(op.Add(x_gates, direct)), 1, 1)
        new = op.Tanh(op.Add(self.recur(op.Mul(reset, hidden), 2, 3), x_new))
        return (op.Add(hidden, op.Mul(update, op.Sub(new, hidden))),)


class Mut3Step(CellStep):
    def advance(self, x: Value, direct: Value, state: State) -> State:
        op, (hidden,) = self.op, state
        x_reset, x_update, x_new = self.split(x, 1, 1, 1)
        reset = op.Sigmoid(op.Add(x_reset, direct))
        update = op.Sigmoid(op.Add(x_update, self.recur(op.Tanh(hidden), 1, 2)))
        new = op.Tanh(op.Add(self.recur(op.Mul(reset, hidden), 2, 3), x_new))
        return (op.Add(hidden, op.Mul(update, op.Sub(new, hidden))),)


STEPS: dict[str, type[CellStep]] = {
    "rnn": RnnStep,
    "lstm": LstmStep,
    "gru": GruStep,
    "mut1": Mut1Step,
    "mut2": Mut2Step,
    "mut3": Mut3Step,
}


def cell_states(cell: str, hidden_dim: int, dtype: str, suffix: str = "") -> tuple[StateSpec, ...]:
    """`hidden` and, of an LSTM, `cell`: the states of one cell."""
    names = ("hidden", "cell")[: STEPS[cell].num_states]
    shape = (hidden_dim,)
    return tuple(StateSpec(name + suffix, StateKind.REPLACE, shape, dtype) for name in names)


def decoder_cell(layers: Layers, cell: str, name: str, hidden_dim: int) -> CellStep:
    """A `models.layers.cells.RecurrentCell` called `name`, without its projections of the input."""
    rows = STEPS[cell].num_recurrent * hidden_dim
    weight = layers.weights.take(f"{name}.hidden.weight", rows, hidden_dim)
    bias = layers.weights.take(f"{name}.hidden.bias", rows)
    return STEPS[cell](layers, f"{name}.hidden", weight, bias)

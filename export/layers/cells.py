"""The recurrent cells of `models.layers.cells` as steps in a graph, and layers of them that keep
their states in the engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from export.graph.writer import Array, Value
from export.layers.basic import Layers
from serving.bundle.manifest import StateKind, StateSpec

State = tuple[Value, ...]  # hidden [batch, hidden_dim]; LSTM: and memory cell, as large


class CellStep(ABC):
    """One cell: its recurrent weight [num_recurrent * hidden, hidden] and bias.

    num_gates: blocks of the input's weight. num_recurrent: blocks of the recurrent weight.
    """

    num_gates: ClassVar[int] = 3
    num_recurrent: ClassVar[int] = 3
    num_states: ClassVar[int] = 1

    def __init__(self, layers: Layers, name: str, weight: Array, bias: Array) -> None:
        self.layers, self.name, self.weight, self.bias = layers, name, weight, bias
        self.dim = weight.shape[1]

    @abstractmethod
    def __call__(self, x: Value, state: State) -> State:
        """x [batch, num_gates * hidden], the projected input, and the state -> the next state."""

    def recur(self, hidden: Value, first: int, last: int) -> Value:
        """The recurrent weight's blocks first..last-1 of `hidden`."""
        rows = slice(first * self.dim, last * self.dim)
        name = f"{self.name}.{first}"
        return self.layers.project(hidden, name, self.weight[rows], self.bias[rows])

    def split(self, x: Value, *blocks: int) -> list[Value]:
        return self.layers.graph.split(x, [n * self.dim for n in blocks])


class RnnStep(CellStep):
    num_gates = num_recurrent = 1

    def __call__(self, x: Value, state: State) -> State:
        op = self.layers.op
        return (op.Tanh(op.Add(x, self.recur(state[0], 0, 1))),)


class LstmStep(CellStep):
    num_gates = num_recurrent = 4
    num_states = 2

    def __call__(self, x: Value, state: State) -> State:
        op = self.layers.op
        gates = op.Add(x, self.recur(state[0], 0, 4))
        admit, keep, new, emit = self.split(gates, 1, 1, 1, 1)
        fresh = op.Mul(op.Sigmoid(admit), op.Tanh(new))
        memory = op.Add(op.Mul(op.Sigmoid(keep), state[1]), fresh)
        return op.Mul(op.Sigmoid(emit), op.Tanh(memory)), memory


class GruStep(CellStep):
    def __call__(self, x: Value, state: State) -> State:
        op, (hidden,) = self.layers.op, state
        x_gates, x_new = self.split(x, 2, 1)
        h_gates, h_new = self.split(self.recur(hidden, 0, 3), 2, 1)
        reset, update = self.split(op.Sigmoid(op.Add(x_gates, h_gates)), 1, 1)
        new = op.Tanh(op.Add(x_new, op.Mul(reset, h_new)))
        return (op.Add(new, op.Mul(update, op.Sub(hidden, new))),)


class Mut1Step(CellStep):
    num_recurrent = 2

    def __call__(self, x: Value, state: State) -> State:
        op, (hidden,) = self.layers.op, state
        x_reset, x_update, x_new = self.split(x, 1, 1, 1)
        reset = op.Sigmoid(op.Add(x_reset, self.recur(hidden, 0, 1)))
        new = op.Tanh(op.Add(self.recur(op.Mul(reset, hidden), 1, 2), op.Tanh(x_new)))
        return (op.Add(hidden, op.Mul(op.Sigmoid(x_update), op.Sub(new, hidden))),)


class Mut2Step(CellStep):
    def __call__(self, x: Value, state: State) -> State:
        op, (hidden,) = self.layers.op, state
        x_gates, x_new = self.split(x, 2, 1)
        reset, update = self.split(op.Sigmoid(op.Add(x_gates, self.recur(hidden, 0, 2))), 1, 1)
        new = op.Tanh(op.Add(self.recur(op.Mul(reset, hidden), 2, 3), x_new))
        return (op.Add(hidden, op.Mul(update, op.Sub(new, hidden))),)


class Mut3Step(CellStep):
    def __call__(self, x: Value, state: State) -> State:
        op, (hidden,) = self.layers.op, state
        x_reset, x_update, x_new = self.split(x, 1, 1, 1)
        reset = op.Sigmoid(op.Add(x_reset, self.recur(hidden, 0, 1)))
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


def cell_step(layers: Layers, cell: str, name: str, hidden_dim: int) -> CellStep:
    """The cell whose recurrent weight and bias are those of the linear layer `name`."""
    take, rows = layers.weights.take, STEPS[cell].num_recurrent * hidden_dim
    return STEPS[cell](
        layers, name, take(f"{name}.weight", rows, hidden_dim), take(f"{name}.bias", rows)
    )


def cell_states(cell: str, hidden_dim: int, dtype: str, num_layers: int) -> list[list[StateSpec]]:
    """Of each layer: `hidden.0`, and of an LSTM `cell.0`."""
    names = ("hidden", "cell")[: STEPS[cell].num_states]
    return [
        [StateSpec(f"{name}.{n}", StateKind.REPLACE, (hidden_dim,), dtype) for name in names]
        for n in range(num_layers)
    ]


def advance(layers: Layers, step: CellStep, x: Value, states: Sequence[StateSpec]) -> Value:
    """Read the states, write what follows: the cell's output [batch, hidden_dim]."""
    following = step(x, read_states(layers, states))
    write_states(layers, states, following)
    return following[0]


def read_states(layers: Layers, states: Sequence[StateSpec]) -> State:
    return tuple(layers.graph.state_input(state) for state in states)


def write_states(layers: Layers, states: Sequence[StateSpec], following: State) -> None:
    for state, value in zip(states, following, strict=True):
        layers.graph.next_state(state, value)

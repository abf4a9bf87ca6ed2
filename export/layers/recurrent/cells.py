"""Recurrent cells as steps in a graph, and layers of them that keep their states in the engine.

Their equations are `models.layers.equations`, which serve torch and graphs.
"""

from collections.abc import Sequence

from export.graph.value import Value
from export.graph.writer import Array
from export.layers.basic import Layers
from models.layers.equations import CELLS
from serving.bundle.manifest import StateKind, StateSpec

State = tuple[Value, ...]  # hidden [batch, hidden_dim]; LSTM: and memory cell, as large


class CellStep:
    """One cell with its recurrent weight [num_recurrent * hidden, hidden] and bias."""

    def __init__(self, layers: Layers, cell: str, name: str, weight: Array, bias: Array) -> None:
        self._layers, self._cell, self._name = layers, CELLS[cell], name
        self._weight, self._bias, self._dim = weight, bias, weight.shape[1]

    def __call__(self, x: Value, state: State) -> State:
        """Go from a state to the next by x [batch, num_gates * hidden], the projected input."""
        following: State = self._cell.step(x, state, self)
        return following

    def times(self, hidden: Value, first: int, last: int) -> Value:
        rows = slice(first * self._dim, last * self._dim)
        name = f"{self._name}.{first}"
        return self._layers.project(hidden, name, self._weight[rows], self._bias[rows])

    def split(self, x: Value, *blocks: int) -> list[Value]:
        return self._layers.graph.split(x, [n * self._dim for n in blocks])


def cell_step(layers: Layers, cell: str, name: str, hidden_dim: int) -> CellStep:
    """Build the cell whose recurrent weight and bias are those of the linear layer `name`."""
    take, rows = layers.weights.take, CELLS[cell].num_recurrent * hidden_dim
    weight, bias = take(f"{name}.weight", rows, hidden_dim), take(f"{name}.bias", rows)
    return CellStep(layers, cell, name, weight, bias)


def cell_states(cell: str, hidden_dim: int, dtype: str, num_layers: int) -> list[list[StateSpec]]:
    """Name the states of each layer: `hidden.0`, and of an LSTM `cell.0`."""
    names = ("hidden", "cell")[: CELLS[cell].num_states]
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

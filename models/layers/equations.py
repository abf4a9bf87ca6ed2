"""Equations that torch's tensors and graphs' values share.

Of recurrent cells x is the projected input, U the recurrent weight with its bias. Both are stacks
of blocks, for LSTM and GRU in torch's order.

- rnn: Elman 1990.
- lstm: Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000).
- gru: Cho et al. 2014, with the reset gate after the recurrent product, as torch and ONNX have it.
- gru-reset-before: the same with the reset gate before the product, as in equation 8 there.
- mut1, mut2, mut3: the three best cells of Jozefowicz, Zaremba and Sutskever 2015. Where x enters
without a weight there (MUT1's tanh(x), MUT2's reset gate) it is projected here, as its size may
differ from the hidden state's. Input and recurrent part each have a bias, as in the other cells.
Their update gate lets the new value in; GRU's keeps the old one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar


class Operand(Protocol):
    def __add__(self, other: Any, /) -> Self: ...

    def __sub__(self, other: Any, /) -> Self: ...

    def __mul__(self, other: Any, /) -> Self: ...

    def exp(self) -> Self: ...

    def maximum(self, other: Any, /) -> Self: ...

    def sigmoid(self) -> Self: ...

    def tanh(self) -> Self: ...


T = TypeVar("T", bound=Operand)


class Recurrence(Protocol[T]):
    """The recurrent weight U of one cell."""

    def project_state(self, hidden: T, first: int, last: int) -> T:
        """Multiply blocks first..last-1 of U by ``hidden``, and add their bias."""

    def split(self, x: T, *blocks: int) -> Sequence[T]:
        """Split the last axis into pieces of so many blocks."""


State = tuple[T, ...]  # hidden [batch, hidden_dim]; LSTM: and memory cell, as large
Step = Callable[[T, State[T], Recurrence[T]], State[T]]


def rnn(x: T, state: State[T], u: Recurrence[T]) -> State[T]:
    """Return h' = tanh(x + U h)."""
    return ((x + u.project_state(state[0], 0, 1)).tanh(),)


def lstm(x: T, state: State[T], u: Recurrence[T]) -> State[T]:
    """Return h' and c', from blocks i, f, g, o."""
    hidden, memory = state
    i, f, g, o = u.split(x + u.project_state(hidden, 0, 4), 1, 1, 1, 1)
    return lstm_output(o, lstm_memory(i, f, g, memory))


def lstm_memory(i: T, f: T, g: T, memory: T) -> T:
    """Return c' = s(f) c + s(i) tanh(g)."""
    fresh = i.sigmoid() * g.tanh()
    return f.sigmoid() * memory + fresh


def lstm_output(o: T, memory: T) -> tuple[T, T]:
    """Return h' = s(o) tanh(c'), and c'."""
    return o.sigmoid() * memory.tanh(), memory


def gru(x: T, state: State[T], u: Recurrence[T]) -> State[T]:
    """Return h' = (1 - z) n + z h, with n = tanh(x_n + r (U h)); blocks reset, update, new."""
    (hidden,) = state
    x_gates, x_new = u.split(x, 2, 1)
    h_gates, h_new = u.split(u.project_state(hidden, 0, 3), 2, 1)
    reset, update = u.split((x_gates + h_gates).sigmoid(), 1, 1)
    new = (x_new + reset * h_new).tanh()
    return (new + update * (hidden - new),)


def gru_reset_before(x: T, state: State[T], u: Recurrence[T]) -> State[T]:
    """Return a GRU's h' with n = tanh(x_n + U (r h)); blocks reset, update, new."""
    (hidden,) = state
    x_gates, x_new = u.split(x, 2, 1)
    reset, update = u.split((x_gates + u.project_state(hidden, 0, 2)).sigmoid(), 1, 1)
    new = (x_new + u.project_state(reset * hidden, 2, 3)).tanh()
    return (new + update * (hidden - new),)


def mut1(x: T, state: State[T], u: Recurrence[T]) -> State[T]:
    """Return h' = z tanh(U (r h) + tanh(x_n)) + (1 - z) h, with z = s(x_z), r = s(x_r + U_r h).

    Blocks reset, update, new; the recurrent weight has no update block.
    """
    (hidden,) = state
    x_reset, x_update, x_new = u.split(x, 1, 1, 1)
    reset = (x_reset + u.project_state(hidden, 0, 1)).sigmoid()
    new = (u.project_state(reset * hidden, 1, 2) + x_new.tanh()).tanh()
    return (hidden + x_update.sigmoid() * (new - hidden),)


def mut2(x: T, state: State[T], u: Recurrence[T]) -> State[T]:
    """Return h' = z tanh(U (r h) + x_n) + (1 - z) h, with z = s(x_z + U_z h), r = s(x_r + U_r h).

    Blocks reset, update, new.
    """
    (hidden,) = state
    x_gates, x_new = u.split(x, 2, 1)
    reset, update = u.split((x_gates + u.project_state(hidden, 0, 2)).sigmoid(), 1, 1)
    new = (u.project_state(reset * hidden, 2, 3) + x_new).tanh()
    return (hidden + update * (new - hidden),)


def mut3(x: T, state: State[T], u: Recurrence[T]) -> State[T]:
    """Return MUT2's h' with z = s(x_z + U_z tanh(h)); blocks reset, update, new."""
    (hidden,) = state
    x_reset, x_update, x_new = u.split(x, 1, 1, 1)
    reset = (x_reset + u.project_state(hidden, 0, 1)).sigmoid()
    update = (x_update + u.project_state(hidden.tanh(), 1, 2)).sigmoid()
    new = (u.project_state(reset * hidden, 2, 3) + x_new).tanh()
    return (hidden + update * (new - hidden),)


def maxout(first: T, second: T) -> T:
    """Return the larger of each pair (Goodfellow et al. 2013)."""
    return first.maximum(second)


def apply_gate(activate: Callable[[T], T], first: T, up: T | None = None) -> T:
    """Return activate(first) (Vaswani et al. 2017, 3.3), or with a gate activate(first) * up
    (Shazeer 2020).
    """
    inner = activate(first)
    return inner if up is None else inner * up


def gaussian(distances: T, window: int) -> T:
    """Return a factor that falls with distance, with a standard deviation of window / 2 (Luong et
    al. 2015, 10).
    """
    return (distances * distances * (-2 / window**2)).exp()


@dataclass(frozen=True)
class CellKind:
    """A cell's step function and sizes in blocks: num_gates of the input weight, num_recurrent of
    U.

    forget_gate: the block whose bias begins at 1. output_gain: brings fresh outputs to about size
    1.
    """

    step: Step[Any]
    num_gates: int = 3
    num_recurrent: int = 3
    num_states: int = 1
    forget_gate: int | None = None
    output_gain: float = 1.0


CELLS = {
    "rnn": CellKind(rnn, num_gates=1, num_recurrent=1),
    # Its output goes through two gates of about a half and two tanh.
    "lstm": CellKind(
        lstm, num_gates=4, num_recurrent=4, num_states=2, forget_gate=1, output_gain=4.0
    ),
    "gru": CellKind(gru),
    "gru-reset-before": CellKind(gru_reset_before),
    "mut1": CellKind(mut1, num_recurrent=2),
    "mut2": CellKind(mut2),
    "mut3": CellKind(mut3),
}


@dataclass(frozen=True)
class ReadoutKind:
    """An activation that makes each number of a readout from `width` neighbours of a sum."""

    activate: Callable[..., Any]
    width: int = 1


READOUTS = {"maxout": ReadoutKind(maxout, width=2), "tanh": ReadoutKind(lambda total: total.tanh())}

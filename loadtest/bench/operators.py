"""Counts the floating-point operations of an operator from the shapes that it ran with.

A multiply-add counts two. What only moves numbers counts none; all else counts one for each number
that it writes, which is little beside products.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Shape = Sequence[int]

PRODUCTS = ("MatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "FusedMatMul")
GEMMS = ("Gemm", "FusedGemm")
CONVOLUTIONS = ("Conv", "FusedConv")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ATTENTION = "GroupQueryAttention"
LOOPS = ("Loop", "Scan", "If")  # their bodies' operators are counted themselves
MOVES = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "NonZero", "Pad", "Reshape", "ReverseSequence", "ScatterElements"),
        *("ScatterND", "Shape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)


@dataclass(frozen=True)
class Ran:
    """Is one operator as it ran.

    inputs, outputs: shapes, without inputs that are not there and weights that were repacked.
    """

    operator: str
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]


@dataclass(frozen=True)
class Lengths:
    """Says what shapes alone do not.

    filled: positions that hold something, where buffers have room for `capacity` of them.
    """

    capacity: int
    filled: int


def work_of(ran: Ran, lengths: Lengths) -> int:
    """Count the floating-point operations of one run of an operator."""
    written = sum(map(prod, ran.outputs))
    if ran.operator in MOVES or ran.operator in LOOPS or not ran.outputs:
        return 0
    if ran.operator in PRODUCTS or ran.operator in GEMMS:
        return 2 * written * ran.inputs[0][-1]
    if ran.operator in CONVOLUTIONS:
        return 2 * written * prod(ran.inputs[1][1:])
    if ran.operator in GATES:
        return _recurrence(ran)
    if ran.operator == ATTENTION:
        return _attention(ran, lengths)
    return written


def _recurrence(ran: Ran) -> int:
    """Count the products of all gates with the input and with the hidden vector."""
    time, batch, inputs = ran.inputs[0]
    directions, hidden = ran.outputs[-1][0], ran.outputs[-1][-1]
    gates = GATES[ran.operator] * hidden
    return 2 * time * batch * directions * gates * (inputs + hidden)


def _attention(ran: Ran, lengths: Lengths) -> int:
    """Count the products of queries with keys, and of weights with values.

    Buffers of `capacity` positions are read as far as they are filled; others are the source's.
    """
    buffers = [shape for shape in (*ran.inputs, *ran.outputs) if len(shape) == 4]
    positions = max((shape[2] for shape in buffers), default=ran.inputs[0][1])
    if positions == lengths.capacity:
        positions = lengths.filled
    return 4 * prod(ran.outputs[0]) * positions

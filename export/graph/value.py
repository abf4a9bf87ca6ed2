"""Tensors of a graph that is being written. They have operators, so that equations read as in a
paper.

Each operator adds one node. Shapes are not known here. Types of elements are, so that numbers
become constants of the same type.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from export.graph.writer import GraphWriter

# Outputs whose type is not the first input's: this type, or that of the input with this number.
TYPES: dict[tuple[str, int], str | int] = {
    ("And", 0): "bool",
    ("DequantizeLinear", 0): 1,
    ("Equal", 0): "bool",
    ("GatherBlockQuantized", 0): 2,
    ("Greater", 0): "bool",
    ("GreaterOrEqual", 0): "bool",
    ("GroupQueryAttention", 1): 3,
    ("GroupQueryAttention", 2): 4,
    ("Less", 0): "bool",
    ("LessOrEqual", 0): "bool",
    ("MatMulInteger", 0): "int32",
    ("MatMulIntegerToFloat", 0): 2,
    ("NonZero", 0): "int64",
    ("QuantizeLinear", 0): 2,
    ("Shape", 0): "int64",
    ("TopK", 1): "int64",
    ("Where", 0): 1,
}


@dataclass(frozen=True)
class Value:
    """A tensor of ``dtype`` in the graph that ``graph`` writes."""

    graph: "GraphWriter"
    bare: ir.Value
    dtype: str
    __iter__: ClassVar[None] = None  # else Python would iterate by endless indices

    def __add__(self, other: "Operand") -> "Value":
        return self._op.Add(self, self._alike(other))

    def __sub__(self, other: "Operand") -> "Value":
        return self._op.Sub(self, self._alike(other))

    def __mul__(self, other: "Operand") -> "Value":
        return self._op.Mul(self, self._alike(other))

    def __truediv__(self, other: "Operand") -> "Value":
        return self._op.Div(self, self._alike(other))

    def __matmul__(self, other: "Value") -> "Value":
        return self._op.MatMul(self, other)

    def __and__(self, other: "Value") -> "Value":
        return self._op.And(self, other)

    def __lt__(self, other: "Operand") -> "Value":
        return self._op.Less(self, self._alike(other))

    def __le__(self, other: "Operand") -> "Value":
        return self._op.LessOrEqual(self, self._alike(other))

    def __gt__(self, other: "Operand") -> "Value":
        return self._op.Greater(self, self._alike(other))

    def __ge__(self, other: "Operand") -> "Value":
        return self._op.GreaterOrEqual(self, self._alike(other))

    def __getitem__(self, key: "Key | tuple[Key, ...]") -> "Value":
        """Slice as numpy does: `x[:, 2:5]`, or `x[:, i]` with an integer or a value of integers,
        which comes last. The end of a slice may be a value [1] int64.
        """
        keys = key if isinstance(key, tuple) else (key,)
        *whole, last = keys
        if isinstance(last, slice):
            return self._cut({i: each for i, each in enumerate(keys) if each != slice(None)})
        index = last if isinstance(last, Value) else self.graph.constant(last, "int64")
        return self._op.Gather(self, index, axis=len(whole))

    def sigmoid(self) -> "Value":
        return self._op.Sigmoid(self)

    def tanh(self) -> "Value":
        return self._op.Tanh(self)

    def relu(self) -> "Value":
        return self._op.Relu(self)

    def exp(self) -> "Value":
        return self._op.Exp(self)

    def abs(self) -> "Value":
        return self._op.Abs(self)

    def minimum(self, other: "Operand") -> "Value":
        return self._op.Min(self, self._alike(other))

    def maximum(self, other: "Operand") -> "Value":
        return self._op.Max(self, self._alike(other))

    def where(self, condition: "Value", otherwise: "Operand") -> "Value":
        """Return this where the condition holds, else the other."""
        return self._op.Where(condition, self, self._alike(otherwise))

    def cast(self, dtype: str) -> "Value":
        """Convert to another type; no node is written if it has that type."""
        return self if dtype == self.dtype else self._op.Cast(self, to=element_type(dtype))

    def sum(self, axis: int) -> "Value":
        return self._op.ReduceSum(self, self.graph.ints(axis), keepdims=0)

    def max(self, *axes: int, keepdims: bool) -> "Value":
        return self._op.ReduceMax(self, self.graph.ints(*axes), keepdims=int(keepdims))

    def unsqueeze(self, *axes: int) -> "Value":
        return self._op.Unsqueeze(self, self.graph.ints(*axes))

    def squeeze(self, *axes: int) -> "Value":
        return self._op.Squeeze(self, self.graph.ints(*axes))

    def reshape(self, *shape: int) -> "Value":
        """Reshape; -1 is the remaining size, 0 keeps an axis."""
        return self._op.Reshape(self, self.graph.ints(*shape))

    def transpose(self, *axes: int) -> "Value":
        return self._op.Transpose(self, perm=list(axes))

    def length(self, axis: int) -> "Value":
        """Return the length of an axis: [1] int64."""
        return self._op.Shape(self, start=axis, end=axis + 1)

    @property
    def _op(self) -> Any:
        return self.graph.op

    def _alike(self, other: "Operand") -> "Value":
        return other if isinstance(other, Value) else self.graph.constant(other, self.dtype)

    def _cut(self, spans: "dict[int, Any]") -> "Value":
        starts = [span.start or 0 for span in spans.values()]
        ends = [sys.maxsize if span.stop is None else span.stop for span in spans.values()]
        start = self.graph.ints(*starts)
        end = ends[0] if isinstance(ends[0], Value) else self.graph.ints(*ends)
        return self._op.Slice(self, start, end, self.graph.ints(*spans))


Operand = Value | float
Key = int | slice | Value


def element_type(dtype: str) -> ir.DataType:
    """Return ONNX's number of a type."""
    return ir.DataType.from_numpy(np.dtype(dtype))


def type_of_output(
    operator: str, output: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> str:
    """Return the type of an operator's output."""
    if operator == "Cast":
        return str(ir.DataType(attributes["to"]).numpy().name)
    found = TYPES.get((operator, output), 0)
    if isinstance(found, str):
        return found
    value: Value = inputs[found]
    return value.dtype

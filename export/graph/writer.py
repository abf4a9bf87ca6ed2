"""The writer of one ONNX graph: typed inputs and outputs, constants stored once, its description.

It is a thin layer over onnx_ir's nodes, and knows nothing of attention models.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Union

import numpy as np
import onnx_ir as ir

from serving.bundle.manifest import BATCH, GraphSpec, Shape, StateSpec, TensorSpec

OPSET = 23
IR_VERSION = 11
MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators
MOST_UNEVEN = 4  # pieces of a Split; of more CUDA's reads tables on the host when it is replayed

Array = np.ndarray[Any, np.dtype[Any]]
Store = Callable[[str, Array], ir.TensorProtocol]  # keeps a named weight somewhere
Operand = Union["Value", float]
Key = Union[int, slice, "Value"]
Values = Sequence["Value"]
Write = Callable[..., Values]  # writes a part of a graph

# Outputs whose type is not the first input's: this type, or that of the input with this number.
COMPARISONS = ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
TYPES: dict[tuple[str, int], str | int] = {
    **{(name, 0): "bool" for name in COMPARISONS},
    **dict.fromkeys([("DequantizeLinear", 0), ("Where", 0)], 1),
    **dict.fromkeys([("NonZero", 0), ("Shape", 0), ("TopK", 1)], "int64"),
    ("GatherBlockQuantized", 0): 2,
    ("GroupQueryAttention", 1): 3,
    ("GroupQueryAttention", 2): 4,
    ("MatMulInteger", 0): "int32",
    ("MatMulIntegerToFloat", 0): 2,
    ("QuantizeLinear", 0): 2,
}


@dataclass(frozen=True)
class Value:
    """A tensor of ``dtype`` in the graph that ``graph`` writes."""

    graph: "GraphWriter"
    bare: ir.Value
    dtype: str
    __iter__: ClassVar[None] = None  # else Python would iterate by endless indices

    def __add__(self, other: "Operand") -> "Value":
        return self._op.Add(self, self._as_value(other))

    def __sub__(self, other: "Operand") -> "Value":
        return self._op.Sub(self, self._as_value(other))

    def __mul__(self, other: "Operand") -> "Value":
        return self._op.Mul(self, self._as_value(other))

    def __truediv__(self, other: "Operand") -> "Value":
        return self._op.Div(self, self._as_value(other))

    def __matmul__(self, other: "Value") -> "Value":
        return self._op.MatMul(self, other)

    def __and__(self, other: "Value") -> "Value":
        return self._op.And(self, other)

    def __lt__(self, other: "Operand") -> "Value":
        return self._op.Less(self, self._as_value(other))

    def __le__(self, other: "Operand") -> "Value":
        return self._op.LessOrEqual(self, self._as_value(other))

    def __gt__(self, other: "Operand") -> "Value":
        return self._op.Greater(self, self._as_value(other))

    def __ge__(self, other: "Operand") -> "Value":
        return self._op.GreaterOrEqual(self, self._as_value(other))

    def __getitem__(self, key: "Key | tuple[Key, ...]") -> "Value":
        """Slice as numpy does: `x[:, 2:5]`, or `x[:, i]` with an integer or a value of integers,
        which comes last. The end of a slice may be a value [1] int64.
        """
        keys = key if isinstance(key, tuple) else (key,)
        *whole, last = keys
        if isinstance(last, slice):
            return self._cut({i: span for i, span in enumerate(keys) if span != slice(None)})
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
        return self._op.Min(self, self._as_value(other))

    def maximum(self, other: "Operand") -> "Value":
        return self._op.Max(self, self._as_value(other))

    def where(self, condition: "Value", otherwise: "Operand") -> "Value":
        """Return this where the condition holds, else the other."""
        return self._op.Where(condition, self, self._as_value(otherwise))

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

    def _as_value(self, other: "Operand") -> "Value":
        return other if isinstance(other, Value) else self.graph.constant(other, self.dtype)

    def _cut(self, spans: "dict[int, Any]") -> "Value":
        start = self.graph.ints(*(span.start or 0 for span in spans.values()))
        ends = [sys.maxsize if span.stop is None else span.stop for span in spans.values()]
        end = ends[0] if isinstance(ends[0], Value) else self.graph.ints(*ends)
        return self._op.Slice(self, start, end, self.graph.ints(*spans))


def element_type(dtype: str) -> ir.DataType:
    """Return ONNX's number of a type."""
    return ir.DataType.from_numpy(np.dtype(dtype))


def type_of_output(
    operator: str, output: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> str:
    """Return the type of an operator's output."""
    if operator == "Cast":
        return str(ir.DataType(attributes["to"]).numpy().name)
    type_or_input = TYPES.get((operator, output), 0)
    if isinstance(type_or_input, str):
        return type_or_input
    return str(inputs[type_or_input].dtype)


def in_memory(name: str, array: Array) -> ir.TensorProtocol:
    return ir.tensor(np.asarray(array, order="C"), name=name)


class GraphWriter:
    """Writes one graph. ``op`` and ``ms`` create nodes of ONNX's and Microsoft's operator sets.

    store: where weights are kept, as soon as they are named.
    shared: the tensors that all graphs of a bundle have in common, by name; see `weights`.
    """

    def __init__(self, name: str) -> None:
        self.store: Store = in_memory
        self.shared: dict[str, Mapping[str, ir.TensorProtocol]] = {}
        opsets = {"": OPSET, MICROSOFT: 1}
        self._graph = ir.Graph([], [], nodes=[], opset_imports=opsets, name=name)
        self._innermost = self._graph  # or the body of a loop, or a branch, while it is written
        self._functions: dict[ir.OperatorIdentifier, ir.Function] = {}
        self.op: Any = _Operators(self, "")
        self.ms: Any = _Operators(self, MICROSOFT)
        self._constants: dict[tuple[str, Shape, bytes], Value] = {}
        self._weights: dict[str, Value] = {}
        self._inputs: list[TensorSpec] = []
        self._outputs: list[TensorSpec] = []
        self._num_nodes = self._num_loops = 0

    @property
    def name(self) -> str:
        return str(self._graph.name)

    @property
    def model(self) -> ir.Model:
        return ir.Model(
            self._graph,
            ir_version=IR_VERSION,
            producer_name="attendant",
            functions=list(self._functions.values()),
        )

    def spec(self, file: str) -> GraphSpec:
        return GraphSpec(file, tuple(self._inputs), tuple(self._outputs))

    def input(self, name: str, dtype: str, shape: Shape, *, per_row: bool = True) -> Value:
        """Declare an input. Of one per row, the batch axis in front is implied."""
        spec = TensorSpec(name, dtype, (BATCH, *shape) if per_row else shape)
        self._inputs.append(spec)
        bare = ir.Value(name=name, type=_tensor(dtype), shape=ir.Shape(spec.shape))
        self._graph.inputs.append(bare)
        return Value(self, bare, dtype)

    def switch(self, name: str) -> Value:
        """Declare an input, [] bool, that is true if nobody feeds it."""
        self._inputs.append(TensorSpec(name, "bool", ()))
        value = self._initializer(name, in_memory(name, np.array(True)))
        self._graph.inputs.append(value.bare)
        return value

    def output(self, name: str, value: Value, dtype: str, shape: Shape) -> None:
        """Declare an output; the axis of the rows in front is implied."""
        assert value.dtype == dtype, f"{name} is {value.dtype}, not {dtype}"
        spec = TensorSpec(name, dtype, (BATCH, *shape))
        self._outputs.append(spec)
        value.bare.name, value.bare.type = name, _tensor(dtype)
        value.bare.shape = ir.Shape(spec.shape)
        self._graph.outputs.append(value.bare)

    def state_input(self, state: StateSpec) -> Value:
        return self.input(state.name, state.dtype, state.shape)

    def state_output(self, state: StateSpec, value: Value) -> None:
        """Put out a state as ``encode`` sets it."""
        self.output(state.name, value, state.dtype, state.shape)

    def next_state(self, state: StateSpec, value: Value) -> None:
        """Put out a state after a step."""
        self.output(f"{state.name}.next", value, state.dtype, state.shape)

    def weight(self, name: str, array: Array) -> Value:
        """Return the initializer of this name, made at the first call."""
        if name not in self._weights:
            self._weights[name] = self._initializer(name, self.store(name, array))
        value = self._weights[name]
        assert value.bare.shape == ir.Shape(array.shape), f"{name} stands for two weights"
        return value

    def weights(self, key: str | None, make: Callable[[], Mapping[str, Array]]) -> dict[str, Value]:
        """Return the initializers of the arrays that `make` returns by their names.

        key: the same in all graphs of a bundle that need these arrays: `make` is called once then.
        None: the arrays belong to this graph.
        """
        if key is None:
            return {name: self.weight(name, array) for name, array in make().items()}
        if key not in self.shared:
            self.shared[key] = {name: self.store(name, array) for name, array in make().items()}
        for name, tensor in self.shared[key].items():
            if name not in self._weights:
                self._weights[name] = self._initializer(name, tensor)
        return {name: self._weights[name] for name in self.shared[key]}

    def constant(self, value: Any, dtype: str) -> Value:
        """Return a small anonymous constant, stored once per graph."""
        array = np.asarray(value, dtype=dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.weight(f"constant.{len(self._constants)}", array)
        return self._constants[key]

    def ints(self, *values: int) -> Value:
        """Return a one-dimensional int64 constant: axes, shapes, positions."""
        return self.constant(values, "int64")

    def split(self, value: Value, sizes: Sequence[int]) -> list[Value]:
        """Split the last axis into pieces of ``sizes``."""
        if len(sizes) == 1:
            return [value]
        if len(sizes) > MOST_UNEVEN and len({*sizes}) > 1:
            first = sum(sizes[:MOST_UNEVEN])
            value, rest = self.split(value, [first, sum(sizes) - first])
            return self.split(value, sizes[:MOST_UNEVEN]) + self.split(rest, sizes[MOST_UNEVEN:])
        return list(self.op.Split(value, self.ints(*sizes), axis=-1, _outputs=len(sizes)))

    def loop(
        self,
        trip_count: Value,
        loop_carried: Values,
        dtype: str,
        body: Write,
        num_scan_outputs: int = 0,
    ) -> list[Value]:
        """Write a Loop of ONNX, whose names these are. trip_count: [] or [1] int64.

        `body(iteration, *loop_carried)` writes an iteration with this writer. It returns what is
        carried to the next iteration, which may be larger, and `num_scan_outputs` more values.
        Returns what the last iteration carried, and the scan outputs [trip_count, ...].

        CUDA computes a Shape, and what depends on it, on the CPU, which its sessions refuse: a
        Shape must be `trip_count` as it is.
        """
        name = f"loop.{self._num_loops}"
        self._num_loops += 1
        # Bundles keep the names of values that they were first written with.
        iteration = ir.Value(name=f"{name}.turn", type=_tensor("int64"), shape=ir.Shape([]))
        cond_in = ir.Value(name=f"{name}.is_on", type=_tensor("bool"), shape=ir.Shape([]))
        carried_in = [
            ir.Value(name=f"{name}.{i}", type=_tensor(dtype)) for i in range(len(loop_carried))
        ]

        def write() -> Values:
            cond_out: Value = self.op.Identity(Value(self, cond_in, "bool"))
            values = (Value(self, value, dtype) for value in carried_in)
            return [cond_out, *body(Value(self, iteration, "int64"), *values)]

        count = len(loop_carried) + num_scan_outputs
        inputs = [iteration, cond_in, *carried_in]
        graph = self._subgraph(name, write, ["bool"] + [dtype] * count, inputs)
        results = self.op.Loop(trip_count, None, *loop_carried, body=graph, _outputs=count)
        return [replace(value, dtype=dtype) for value in ([results] if count == 1 else results)]

    def branch(
        self, condition: Value, dtype: str, then: Write, otherwise: Write, count: int
    ) -> list[Value]:
        """Compute `count` values, written with this writer, in one of two ways. CUDA reads the
        condition on the host.
        """

        branches = {
            "then_branch": self._subgraph("then", then, [dtype] * count),
            "else_branch": self._subgraph("else", otherwise, [dtype] * count),
        }
        results = self.op.If(condition, **branches, _outputs=count)
        return [replace(value, dtype=dtype) for value in ([results] if count == 1 else results)]

    @property
    def is_nested(self) -> bool:
        """Whether the writer is in the body of a loop or in a branch."""
        return self._innermost is not self._graph

    def add(
        self,
        domain: str,
        operator: str,
        *inputs: Value | None,
        _outputs: int = 1,
        **attributes: Any,
    ) -> Value | list[Value]:
        """Create a node of the operator in the graph, in a loop's body or in a branch."""
        values = [
            Value(self, output, type_of_output(operator, i, inputs, attributes))
            for i, output in enumerate(self._node(domain, operator, inputs, attributes, _outputs))
        ]
        return values if len(values) > 1 else values[0]

    def call(
        self,
        function: ir.Function,
        *inputs: Value | None,
        types: Sequence[str] | None = None,
        **attributes: Any,
    ) -> list[Value]:
        """Create a node that calls a function, whose body is written into the model.

        inputs: optional ones may be None.
        types: of the outputs; by default each has the type of the input with its number.
        """
        self._graph.opset_imports[function.domain] = 1
        self._functions[function.identifier()] = function
        count = len(function.outputs)
        outputs = self._node(function.domain, function.name, inputs, attributes, count)
        types = types or [value.dtype for value in inputs if value is not None]
        return [Value(self, *typed) for typed in zip(outputs, types, strict=False)]

    def _node(
        self,
        domain: str,
        operator: str,
        inputs: Sequence[Value | None],
        attributes: dict[str, Any],
        num_outputs: int,
    ) -> Sequence[ir.Value]:
        """Create a node, and return its outputs. Their names differ from those of all graphs."""
        name = f"{operator}.{self._num_nodes}"
        self._num_nodes += 1
        node = ir.node(
            operator,
            [value.bare if value is not None else None for value in inputs],
            attributes,
            domain=domain,
            outputs=[ir.Value(name=f"{name}.{i}") for i in range(num_outputs)],
            name=name,
        )
        self._innermost.append(node)
        return node.outputs

    def _initializer(self, name: str, tensor: ir.TensorProtocol) -> Value:
        """Put a tensor into the outermost graph, whose values bodies and branches may use."""
        shape, dtype = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        bare = ir.Value(name=name, shape=shape, type=dtype, const_value=tensor)
        self._graph.register_initializer(bare)
        return Value(self, bare, tensor.dtype.numpy().name)

    def _subgraph(
        self,
        name: str,
        write: Callable[[], Values],
        dtypes: Sequence[str],
        inputs: Sequence[ir.Value] = (),
    ) -> ir.Graph:
        """Return what `write` writes with this writer, as a graph inside the one being written;
        its outputs are what `write` returns, of these types.
        """
        outer = self._innermost
        graph = self._innermost = ir.Graph(inputs, [], nodes=[], name=name)
        values = write()
        self._innermost = outer
        for value, dtype in zip(values, dtypes, strict=True):
            value.bare.type = _tensor(dtype)
            graph.outputs.append(value.bare)
        return graph


class _Operators:
    """The operators of one set by name: `op.Add(x, y)`."""

    def __init__(self, writer: GraphWriter, domain: str) -> None:
        self._writer, self._domain = writer, domain

    def __getattr__(self, operator: str) -> Callable[..., Any]:
        return partial(self._writer.add, self._domain, operator)


def _tensor(dtype: str) -> ir.TensorType:
    return ir.TensorType(element_type(dtype))

"""Writes one ONNX graph: typed inputs and outputs, constants stored once, and its description.

A thin layer over onnxscript's GraphBuilder. It knows ONNX, not attention models.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript import GraphBuilder

from serving.bundle.manifest import BATCH, GraphSpec, Shape, StateSpec, TensorSpec

OPSET = 23
IR_VERSION = 11
MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators

Value = ir.Value
Array = np.ndarray[Any, np.dtype[Any]]


class GraphWriter:
    """One graph in the making. ``op`` and ``ms`` create nodes of ONNX's and Microsoft's sets."""

    def __init__(self, name: str) -> None:
        opsets = {"": OPSET, MICROSOFT: 1}
        self._graph = ir.Graph([], [], nodes=[], opset_imports=opsets, name=name)
        self._builder = GraphBuilder(self._graph)
        self.op: Any = self._builder.op
        self.ms: Any = self._builder.opset(MICROSOFT, 1)
        self._constants: dict[tuple[str, Shape, bytes], Value] = {}
        self._weights: dict[str, Value] = {}
        self._inputs: list[TensorSpec] = []
        self._outputs: list[TensorSpec] = []

    @property
    def name(self) -> str:
        return str(self._graph.name)

    @property
    def model(self) -> ir.Model:
        return ir.Model(self._graph, ir_version=IR_VERSION, producer_name="attendant")

    def spec(self, file: str) -> GraphSpec:
        return GraphSpec(file, tuple(self._inputs), tuple(self._outputs))

    def input(self, name: str, dtype: str, shape: Shape) -> Value:
        """Declare an input; the batch axis in front is implied."""
        spec = TensorSpec(name, dtype, (BATCH, *shape))
        self._inputs.append(spec)
        value: Value = self._builder.input(name, _ir_type(dtype), list(spec.shape))
        return value

    def output(self, name: str, value: Value, dtype: str, shape: Shape) -> None:
        """Declare an output; the batch axis in front is implied."""
        spec = TensorSpec(name, dtype, (BATCH, *shape))
        self._outputs.append(spec)
        self._builder.add_output(value, name)
        value.type = ir.TensorType(_ir_type(dtype))
        value.shape = ir.Shape(list(spec.shape))

    def state_input(self, state: StateSpec) -> Value:
        return self.input(state.name, state.dtype, state.shape)

    def state_output(self, state: StateSpec, value: Value) -> None:
        """The state as ``encode`` sets it."""
        self.output(state.name, value, state.dtype, state.shape)

    def next_state(self, state: StateSpec, value: Value) -> None:
        """The state after a step."""
        self.output(f"{state.name}.next", value, state.dtype, state.shape)

    def weight(self, name: str, array: Array) -> Value:
        """A named initializer; the second call with the same name gives the same value."""
        if name not in self._weights:
            tensor = ir.tensor(np.asarray(array, order="C"), name=name)
            self._weights[name] = self._builder.initializer(tensor, name=name)
        return self._weights[name]

    def constant(self, value: Any, dtype: str) -> Value:
        """A small anonymous constant, stored once per graph."""
        array = np.asarray(value, dtype=dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.weight(f"constant.{len(self._constants)}", array)
        return self._constants[key]

    def ints(self, *values: int) -> Value:
        """A one-dimensional int64 constant: axes, shapes, positions."""
        return self.constant(values, "int64")

    def split(self, value: Value, sizes: Sequence[int]) -> list[Value]:
        """Cut the last axis into pieces of ``sizes``."""
        if len(sizes) == 1:
            return [value]
        return list(self.op.Split(value, self.ints(*sizes), axis=-1, _outputs=len(sizes)))


def _ir_type(dtype: str) -> ir.DataType:
    return ir.DataType.from_numpy(np.dtype(dtype))

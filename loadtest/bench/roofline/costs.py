"""Counts what a model's graphs multiply, and how many bytes of weights that reads.

Counted are products with weights: they are most of the work, and the same for every engine.
Attention's own products depend on lengths and are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, NodeProto, TensorProto

PRODUCTS = ("MatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "Gemm", "FusedMatMul")


@dataclass(frozen=True)
class Cost:
    """Holds multiply-adds of one row, and bytes of weights that a run reads once for all rows."""

    multiply_adds: int
    weight_bytes: int


def cost_of(graph_file: Path) -> Cost:
    """Count the products with weights of a graph, the bodies of its loops once."""
    graph = onnx.load(graph_file, load_external_data=False).graph
    weights = {tensor.name: tensor for tensor in _tensors(graph)}
    pairs = [
        (node, weights[node.input[1]])
        for node in _nodes(graph)
        if node.op_type in PRODUCTS and len(node.input) > 1 and node.input[1] in weights
    ]
    return Cost(
        sum(_multiply_adds(node, weight) for node, weight in pairs),
        sum(_bytes(weight) for weight in {weight.name: weight for _, weight in pairs}.values()),
    )


def _multiply_adds(node: NodeProto, weight: TensorProto) -> int:
    if node.op_type == "MatMulNBits":
        sizes = {each.name: each.i for each in node.attribute}
        return int(sizes["K"] * sizes["N"])
    return _num_values(weight)


def _bytes(weight: TensorProto) -> int:
    return _num_values(weight) * onnx.helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize


def _num_values(weight: TensorProto) -> int:
    count = 1
    for size in weight.dims:
        count *= size
    return count


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)

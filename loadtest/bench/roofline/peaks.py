"""Measures what this machine could do at most: products in int8 and in fp32, and memory.

Through ONNX Runtime, with the sessions that serve: what its kernels reach is the limit that counts.
A product is hot where its weights stay in a cache, cold where they come from memory.
"""

import time
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from serving.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.runtime.graph import OrtGraph
from serving.engine.runtime.session import open_session

REPETITIONS = 12
HOT = (256, 512, 2048, 1)  # rows, in, out, number of weights
COLD = (32, 512, 32000, 6)
COPIED = 64 * 2**20  # floats: far beyond any cache


@dataclass(frozen=True)
class Peaks:
    """Holds multiply-adds a second, and bytes read and written a second, of all cores together."""

    int8_hot: float
    int8_cold: float
    fp32_hot: float
    fp32_cold: float
    memory_bytes: float


def measure_peaks(threads: int) -> Peaks:
    config = EngineConfig(threads=threads)
    return Peaks(
        int8_hot=_product_peak("int8", HOT, config),
        int8_cold=_product_peak("int8", COLD, config),
        fp32_hot=_product_peak("fp32", HOT, config),
        fp32_cold=_product_peak("fp32", COLD, config),
        memory_bytes=_memory_peak(config),
    )


def _product_peak(kind: str, sizes: tuple[int, int, int, int], config: EngineConfig) -> float:
    rows, inner, outer, count = sizes
    model, x = _KINDS[kind](rows, inner, outer, count)
    outputs = {f"y{i}": np.zeros((rows, outer), np.float32) for i in range(count)}
    seconds = _best_seconds(model, {"x": x}, outputs, config)
    return rows * inner * outer * count / seconds


def _memory_peak(config: EngineConfig) -> float:
    """Negate a large array: each value is read once and written once."""
    x = np.ones(COPIED, np.float32)
    model = _model([helper.make_node("Neg", ["x"], ["y0"])], TensorProto.FLOAT, [], 1)
    return 2 * x.nbytes / _best_seconds(model, {"x": x}, {"y0": np.zeros_like(x)}, config)


def _best_seconds(
    model: ModelProto, inputs: dict[str, Array], outputs: dict[str, Array], config: EngineConfig
) -> float:
    """Return the least time: whatever else the machine does only adds to it."""
    run = OrtGraph(open_session(model.SerializeToString(), config)).bind(inputs, outputs)
    run()
    times = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def _int8_products(rows: int, inner: int, outer: int, count: int) -> tuple[ModelProto, Array]:
    """Multiply as the graphs of int8 bundles do: unsigned rows, signed weights, float sums."""
    draw = np.random.default_rng(0)
    weights = [
        draw.integers(-127, 128, (inner, outer), np.int8, endpoint=False) for _ in range(count)
    ]
    tensors = [
        *(numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)),
        numpy_helper.from_array(np.array(0.01, np.float32), "step"),
        numpy_helper.from_array(np.full(outer, 0.01, np.float32), "scale"),
        numpy_helper.from_array(np.array(128, np.uint8), "zero"),
    ]
    nodes = [
        helper.make_node(
            "MatMulIntegerToFloat",
            ["x", f"w{i}", "step", "scale", "zero"],
            [f"y{i}"],
            domain="com.microsoft",
        )
        for i in range(count)
    ]
    x = draw.integers(0, 256, (rows, inner), np.uint8)
    return _model(nodes, TensorProto.UINT8, tensors, 2), x


def _fp32_products(rows: int, inner: int, outer: int, count: int) -> tuple[ModelProto, Array]:
    draw = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array(draw.standard_normal((inner, outer), np.float32), f"w{i}")
        for i in range(count)
    ]
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(count)]
    x = draw.standard_normal((rows, inner), np.float32)
    return _model(nodes, TensorProto.FLOAT, tensors, 2), x


def _model(
    nodes: list[NodeProto], input_type: int, tensors: list[TensorProto], rank: int
) -> ModelProto:
    x = helper.make_tensor_value_info("x", input_type, [None] * rank)
    outputs = [
        helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [None] * rank)
        for node in nodes
    ]
    graph = helper.make_graph(nodes, "peak", [x], outputs, tensors)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


_KINDS = {"int8": _int8_products, "fp32": _fp32_products}

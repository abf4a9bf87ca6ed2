"""Loops: written by the same writer, with the same weights, and values may grow in them."""

import numpy as np
import onnx_ir as ir

from export.graph.writer import GraphWriter, Value
from export.layers.basic import Layers
from serving.bundle.manifest import Precision
from tests.export.sessions import session_of
from tests.tiny import RandomWeights


def test_a_loop_carries_grows_and_collects() -> None:
    graph, weights = GraphWriter("loop"), RandomWeights()
    layers = Layers(graph, weights, Precision.INT8)
    start = graph.input("start", "float32", (3,))

    def body(iteration: Value, x: Value, history: Value) -> list[Value]:
        x = layers.linear(x, ["layer"], 3, [3], bias=True).tanh()
        numbered = x + iteration.cast("float32")
        return [x, graph.op.Concat(history, x, axis=1), numbered]

    trip_count = graph.constant(4, "int64")
    last, history, numbered = graph.loop(
        trip_count, [start, start], "float32", body, num_scan_outputs=1
    )
    graph.output("last", last, "float32", (3,))
    graph.output("history", history, "float32", (15,))
    graph.output("numbered", numbered.transpose(1, 0, 2), "float32", (4, 3))
    after = layers.linear(last, ["layer"], 3, [3], bias=True)  # the same weight outside
    graph.output("after", after, "float32", (3,))

    proto = ir.to_proto(graph.model)
    assert sorted(each.name for each in proto.graph.initializer if "layer" in each.name) == [
        "layer.bias",
        "layer.int8",
        "layer.scale",
        "layer.uint8",  # in the loop
    ]
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    actual = session_of(graph).run(None, {"start": x})
    expected = [x]
    weight, bias = weights.arrays["layer.weight"], weights.arrays["layer.bias"]
    tolerance = 0.0  # half a step of each input and weight a turn, and what was off before
    for _ in range(5):
        tolerance = rounding(expected[-1], weight) + np.abs(weight).sum(axis=1).max() * tolerance
        expected.append(np.tanh(expected[-1] @ weight.T + bias))
    after_last = expected[4] @ weight.T + bias
    wanted = [expected[4], np.concatenate(expected[:5], 1), expected[4] + 3, after_last]
    for one, other in zip([*actual[:2], actual[2][:, 3], actual[3]], wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1.01 * tolerance)


def rounding(x: np.ndarray, weight: np.ndarray) -> float:
    """How far x [rows, in] times weight [out, in] transposed may be off in int8, at worst."""
    x, weight = np.abs(x), np.abs(weight)
    x_off, weight_off = (each.max(axis=1, keepdims=True) / 254 for each in (x, weight))
    off = x_off * weight.sum(axis=1) + (x.sum(axis=1, keepdims=True) + 3 * x_off) * weight_off.T
    return float(off.max())

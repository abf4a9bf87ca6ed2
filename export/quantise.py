"""Row-wise int8: each row of activations has its own scale, each output channel of weights too.

One scale for the whole batch, as ONNX Runtime's dynamic quantisation has it, couples the rows: a
row's error went from 1 % to 14 % when louder rows shared its batch. Here the integer sums are
exact and every other operation is elementwise, so a row does not change with its neighbours.
"""

import numpy as np

from export.graph import Array, GraphWriter, Value

LEVELS = 127  # symmetric: -127..127
ZERO_POINT = 128  # of the unsigned activations, which the fast kernels want
SMALLEST_RANGE = 1e-12  # keeps a channel of zeros from dividing by zero


def quantise_channels(weight: Array) -> tuple[Array, Array]:
    """[out, in] weights -> int8 [in, out] and the scale of every output channel [out]."""
    scale = np.maximum(np.abs(weight).max(axis=1), SMALLEST_RANGE) / LEVELS
    levels = np.rint(weight / scale[:, None])
    return levels.T.astype(np.int8), scale.astype(np.float32)


class RowQuantiser:
    """Linear maps on row-wise quantised activations; projections of the same input share it."""

    def __init__(self, graph: GraphWriter) -> None:
        self._graph = graph
        self._quantised: dict[Value, tuple[Value, Value]] = {}
        self._step = graph.constant(1 / LEVELS, "float32")
        self._zero_point = graph.constant(ZERO_POINT, "uint8")

    def linear(self, x: Value, name: str, weight: Array) -> Value:
        """x [..., in] times weight [out, in] transposed -> [..., out]."""
        graph = self._graph
        levels, row_range = self._quantise(x)
        weight_levels, scale = quantise_channels(weight)
        product = graph.ms.MatMulIntegerToFloat(
            levels,
            graph.weight(f"{name}.int8", weight_levels),
            self._step,
            graph.weight(f"{name}.scale", scale),
            self._zero_point,
        )
        return graph.op.Mul(product, row_range)

    def _quantise(self, x: Value) -> tuple[Value, Value]:
        """x -> uint8 levels and each row's largest magnitude [..., 1]."""
        if x not in self._quantised:
            op = self._graph.op
            row_range = op.ReduceMax(op.Abs(x), self._graph.ints(-1), keepdims=1)
            # In a row of zeros 0/0 becomes some level, which the range, 0, makes 0 again.
            levels = op.QuantizeLinear(op.Div(x, row_range), self._step, self._zero_point)
            self._quantised[x] = (levels, row_range)
        return self._quantised[x]

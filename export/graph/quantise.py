"""Products in row-wise int8: each row of activations has a scale, each output channel of weights
too.

Weights that a model's source holds in int8 keep their levels and scales.

One scale for the whole batch, as in ONNX Runtime's dynamic quantisation, makes rows depend on each
other: a row's error went from 1 % to 14 % when rows with larger activations shared its batch. Here
the integer sums are exact and every other operation is elementwise, so a row does not change with
its neighbours.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from export.graph.functions import QUANTIZED_LINEAR, parse_function
from export.graph.writer import Array, GraphWriter, Value

LEVELS = 127  # symmetric: -127..127
ZERO_POINT = 128  # of the unsigned activations, which the fast kernels want
SMALLEST_RANGE = 1e-12  # keeps a channel of zeros from dividing by zero


@dataclass(frozen=True)
class ChannelScales:
    """The quantisation of a weight: the step between levels of every output channel [out].

    input_range: the range to which the input is clipped; None if every row has its own range.
    """

    scale: Array
    input_range: float | None = None


def quantise_channels(weight: Array, channels: ChannelScales | None = None) -> tuple[Array, Array]:
    """Return int8 weights [in, out] and the scale of every output channel [out], for weights [out,
    in]: as they were quantised already, or by each channel's largest weight.
    """
    if channels is not None:
        scale = channels.scale
    else:
        scale = np.maximum(np.abs(weight).max(axis=1), SMALLEST_RANGE) / LEVELS
    levels = np.rint(weight / scale[:, None])
    return levels.T.astype(np.int8), scale.astype(np.float32)


def quantise_rows(weight: Array, channels: ChannelScales | None = None) -> tuple[Array, Array]:
    """Return uint8 weights [out, in] with zero at ZERO_POINT, and the scale of every row [out]: for
    products in which some of the rows are gathered first.
    """
    levels, scale = quantise_channels(weight, channels)
    return (levels.T.astype(np.int16) + ZERO_POINT).astype(np.uint8), scale


class RowQuantiser:
    """Linear layers with row-wise quantised activations. Layers with the same input share them.

    If a model was tuned for a fixed input range, that is taken: fewer operations, and the numbers
    that it was tuned with.
    """

    def __init__(self, graph: GraphWriter) -> None:
        self._graph = graph
        self._clipped: dict[tuple[Value, float | None], Value] = {}
        self._quantised: dict[Value, tuple[Value, Value]] = {}
        self._uses = Counter[str]()
        self._zero_point = graph.constant(ZERO_POINT, "uint8")

    @property
    def _step(self) -> Value:
        """The value of a level, for rows that were divided by their ranges."""
        return self._graph.constant(1 / LEVELS, "float32")

    def linear(
        self,
        x: Value,
        name: str,
        weight: Array,
        bias: Array | None = None,
        channels: ChannelScales | None = None,
    ) -> Value:
        """Multiply x [..., in] by weight [out, in] transposed and add bias [out]: [..., out]."""
        if channels is not None and channels.input_range is not None:
            return self._clipped_linear(x, name, weight, bias, channels)
        if self._graph.is_nested:
            product = self._row_wise_linear(x, name, weight, channels)
            return product if bias is None else product + self._graph.weight(f"{name}.bias", bias)
        weight_levels, scale = quantise_channels(weight, channels)
        bias = np.zeros(len(weight), np.float32) if bias is None else bias
        # Layers that share a weight have a copy each, as ONNX Runtime fails to make a signed weight
        # unsigned twice.
        copy = f".{self._uses[name]}" if name in self._uses else ""
        self._uses[name] += 1
        [y] = self._graph.call(
            parse_function(QUANTIZED_LINEAR),
            x,
            self._graph.weight(f"{name}.int8{copy}", weight_levels),
            self._graph.weight(f"{name}.scale", scale),
            self._graph.weight(f"{name}.bias", bias),
        )
        return y

    def lookup(
        self, ids: Value, name: str, table: Array, channels: ChannelScales, scale: float
    ) -> Value:
        """Return rows of a table [words, dim] that its source holds with one step, times scale."""
        graph = self._graph
        rows, steps = quantise_rows(table, channels)
        rows_of_ids = graph.op.Gather(graph.weight(f"{name}.rows", rows), ids)
        step = graph.constant(steps[0] * np.float32(scale), "float32")
        vectors: Value = graph.op.DequantizeLinear(rows_of_ids, step, self._zero_point)
        return vectors

    def quantise_signed(self, x: Value, channels: ChannelScales | None) -> tuple[Value, Value]:
        """Return int8 levels of x [..., in], and the value of a level: [], or [..., 1] of
        each row.
        """
        op, zero = self._graph.op, self._graph.constant(0, "int8")
        if channels is not None and channels.input_range is not None:
            step = self._step_of(channels)
            return op.QuantizeLinear(x, step, zero), step
        row_range = _row_range(x)
        levels = op.QuantizeLinear(x / row_range, self._step, zero)
        return levels, row_range * self._step

    def _clipped_linear(
        self, x: Value, name: str, weight: Array, bias: Array | None, channels: ChannelScales
    ) -> Value:
        added = None if bias is None else self._graph.weight(f"{name}.bias", bias)
        levels, step = self._clip(x, channels), self._step_of(channels)
        return self._multiply(levels, step, name, weight, channels, added)

    def _row_wise_linear(
        self, x: Value, name: str, weight: Array, channels: ChannelScales | None
    ) -> Value:
        levels, row_range = self._quantise(x)
        return self._multiply(levels, self._step, name, weight, channels) * row_range

    def _multiply(
        self,
        levels: Value,
        step: Value,
        name: str,
        weight: Array,
        channels: ChannelScales | None,
        bias: Value | None = None,
    ) -> Value:
        """Multiply levels by weights in int8.

        Without VNNI, products of unsigned with signed bytes saturate. ONNX Runtime makes signed
        weights unsigned there if a session option asks for it (`serving.engine.runtime.session`),
        but not in the bodies of loops. There they are unsigned from the beginning, which VNNI
        multiplies half as fast.
        """
        graph, zero_point = self._graph, None
        weight_levels, scale = quantise_channels(weight, channels)
        named = f"{name}.int8"
        if graph.is_nested:
            named, zero_point = f"{name}.uint8", self._zero_point
            weight_levels = (weight_levels.astype(np.int16) + ZERO_POINT).astype(np.uint8)
        return graph.ms.MatMulIntegerToFloat(
            levels,
            graph.weight(named, weight_levels),
            step,
            graph.weight(f"{name}.scale", scale),
            self._zero_point,
            zero_point,
            bias,
        )

    def _clip(self, x: Value, channels: ChannelScales) -> Value:
        """Return uint8 levels of x within the input range of the weight, and one below it."""
        key = x, channels.input_range
        if key not in self._clipped:
            step = self._step_of(channels)
            self._clipped[key] = self._graph.op.QuantizeLinear(x, step, self._zero_point)
        return self._clipped[key]

    def _step_of(self, channels: ChannelScales) -> Value:
        assert channels.input_range is not None
        return self._graph.constant(channels.input_range / LEVELS, "float32")

    def _quantise(self, x: Value) -> tuple[Value, Value]:
        """Return uint8 levels of x, and each row's largest magnitude [..., 1]."""
        if x not in self._quantised:
            op, row_range = self._graph.op, _row_range(x)
            # In a row of zeros 0 / 0 gives any level; the range, 0, makes it 0 again.
            levels = op.QuantizeLinear(x / row_range, self._step, self._zero_point)
            self._quantised[x] = (levels, row_range)
        return self._quantised[x]


def _row_range(x: Value) -> Value:
    """Return each row's largest magnitude: [..., 1]."""
    return x.abs().max(-1, keepdims=True)

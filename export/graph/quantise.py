"""Products in row-wise int8: each row of activations has a scale, each output channel of weights
too.

Weights that a model's source holds in int8 keep their values and scales.

One scale for the whole batch, as in ONNX Runtime's dynamic quantisation, makes rows depend on each
other: a row's error went from 1 % to 14 % when rows with larger activations shared its batch. Here
the integer sums are exact and every other operation is elementwise, so a row does not change with
its neighbours.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from export.graph.functions import QUANTIZED_LINEAR, parse_function
from export.graph.matrix import Matrix
from export.graph.writer import Array, GraphWriter, Value

MAX_QUANTISED = 127  # symmetric: -127..127
ZERO_POINT = 128  # of the unsigned activations, which the fast kernels want
SMALLEST_ABSMAX = 1e-12  # keeps a channel of zeros from dividing by zero


@dataclass(frozen=True)
class ChannelScales:
    """The quantisation of a weight: the scale of every output channel [out].

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
        scale = np.maximum(np.abs(weight).max(axis=1), SMALLEST_ABSMAX) / MAX_QUANTISED
    quantised = np.rint(weight / scale[:, None])
    return quantised.T.astype(np.int8), scale.astype(np.float32)


def quantise_rows(weight: Array, channels: ChannelScales | None = None) -> tuple[Array, Array]:
    """Return uint8 weights [out, in] with zero at ZERO_POINT, and the scale of every row [out]: for
    products in which some of the rows are gathered first.
    """
    quantised, scale = quantise_channels(weight, channels)
    return (quantised.T.astype(np.int16) + ZERO_POINT).astype(np.uint8), scale


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
    def _unit_scale(self) -> Value:
        """The scale of rows that were divided by their absmax."""
        return self._graph.constant(1 / MAX_QUANTISED, "float32")

    def linear(
        self,
        x: Value,
        name: str,
        weight: Matrix,
        bias: Array | None = None,
        channels: ChannelScales | None = None,
    ) -> Value:
        """Multiply x [..., in] by weight [out, in] transposed and add bias [out]: [..., out]."""
        if channels is not None and channels.input_range is not None:
            return self._clipped_linear(x, name, weight, bias, channels)
        if self._graph.is_nested:
            product = self._row_wise_linear(x, name, weight, channels)
            return product if bias is None else product + self._graph.weight(f"{name}.bias", bias)
        bias = np.zeros(weight.shape[0], np.float32) if bias is None else bias
        # Layers that share a weight have a copy each, as ONNX Runtime fails to make a signed weight
        # unsigned twice.
        copy = f".{self._uses[name]}" if name in self._uses else ""
        self._uses[name] += 1
        [y] = self._graph.call(
            parse_function(QUANTIZED_LINEAR),
            x,
            *self._quantised_weight(name, weight, channels, f".int8{copy}"),
            self._graph.weight(f"{name}.bias", bias),
        )
        return y

    def lookup(
        self, ids: Value, name: str, table: Matrix, channels: ChannelScales, scale: float
    ) -> Value:
        """Return rows of a table [words, dim] that its source holds with one step, times scale."""
        graph = self._graph
        rows, steps = quantise_rows(table.read(), channels)
        rows_of_ids = graph.op.Gather(graph.weight(f"{name}.rows", rows), ids)
        step = graph.constant(steps[0] * np.float32(scale), "float32")
        vectors: Value = graph.op.DequantizeLinear(rows_of_ids, step, self._zero_point)
        return vectors

    def quantise_signed(self, x: Value, channels: ChannelScales | None) -> tuple[Value, Value]:
        """Return int8 values of x [..., in], and the scale: [], or [..., 1] of
        each row.
        """
        op, zero = self._graph.op, self._graph.constant(0, "int8")
        if channels is not None and channels.input_range is not None:
            scale = self._input_scale(channels)
            return op.QuantizeLinear(x, scale, zero), scale
        absmax = _row_absmax(x)
        quantised = op.QuantizeLinear(x / absmax, self._unit_scale, zero)
        return quantised, absmax * self._unit_scale

    def _clipped_linear(
        self, x: Value, name: str, weight: Matrix, bias: Array | None, channels: ChannelScales
    ) -> Value:
        added = None if bias is None else self._graph.weight(f"{name}.bias", bias)
        quantised, input_scale = self._clip(x, channels), self._input_scale(channels)
        return self._multiply(quantised, input_scale, name, weight, channels, added)

    def _row_wise_linear(
        self, x: Value, name: str, weight: Matrix, channels: ChannelScales | None
    ) -> Value:
        quantised, absmax = self._quantise(x)
        return self._multiply(quantised, self._unit_scale, name, weight, channels) * absmax

    def _multiply(
        self,
        quantised: Value,
        input_scale: Value,
        name: str,
        weight: Matrix,
        channels: ChannelScales | None,
        bias: Value | None = None,
    ) -> Value:
        """Multiply quantised inputs by weights in int8.

        Without VNNI, products of unsigned with signed bytes saturate. ONNX Runtime makes signed
        weights unsigned there if a session option asks for it (`serving.engine.runtime.session`),
        but not in the bodies of loops. There they are unsigned from the beginning, which VNNI
        multiplies half as fast.
        """
        is_unsigned = self._graph.is_nested
        ending = ".uint8" if is_unsigned else ".int8"
        levels, scale = self._quantised_weight(name, weight, channels, ending)
        zero_point = self._zero_point if is_unsigned else None
        return self._graph.ms.MatMulIntegerToFloat(
            quantised, levels, input_scale, scale, self._zero_point, zero_point, bias
        )

    def _quantised_weight(
        self, name: str, weight: Matrix, channels: ChannelScales | None, ending: str
    ) -> tuple[Value, Value]:
        """Return the weight's levels [in, out], int8 or uint8 by the ending of their name, and its
        scales.
        """
        levels_name, scale_name = f"{name}{ending}", f"{name}.scale"

        def quantise() -> dict[str, Array]:
            levels, scale = quantise_channels(weight.read(), channels)
            if ending == ".uint8":
                levels = (levels.astype(np.int16) + ZERO_POINT).astype(np.uint8)
            return {levels_name: levels, scale_name: scale}

        values = self._graph.weights(levels_name if weight.is_shared else None, quantise)
        return values[levels_name], values[scale_name]

    def _clip(self, x: Value, channels: ChannelScales) -> Value:
        """Return uint8 values of x within the input range of the weight, and one below it."""
        key = x, channels.input_range
        if key not in self._clipped:
            scale = self._input_scale(channels)
            self._clipped[key] = self._graph.op.QuantizeLinear(x, scale, self._zero_point)
        return self._clipped[key]

    def _input_scale(self, channels: ChannelScales) -> Value:
        assert channels.input_range is not None
        return self._graph.constant(channels.input_range / MAX_QUANTISED, "float32")

    def _quantise(self, x: Value) -> tuple[Value, Value]:
        """Return uint8 values of x, and each row's largest magnitude [..., 1]."""
        if x not in self._quantised:
            op, absmax = self._graph.op, _row_absmax(x)
            # In a row of zeros 0 / 0 gives any level; the range, 0, makes it 0 again.
            quantised = op.QuantizeLinear(x / absmax, self._unit_scale, self._zero_point)
            self._quantised[x] = (quantised, absmax)
        return self._quantised[x]


def _row_absmax(x: Value) -> Value:
    """Return each row's largest magnitude, or NaN for a row with NaN or infinity: [..., 1]."""
    return x.abs().max(-1, keepdims=True) + (x - x).sum(-1).unsqueeze(-1)

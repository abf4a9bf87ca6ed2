"""Weights in blocks of a row, each block with its own scale: 8 bits or 4, as in GGUF files.

ONNX Runtime's MatMulNBits quantises the activations itself, block by block. It is one node where
row-wise int8 (`export.graph.quantise`) has six, which counts where few rows are decoded.

A row must not change with its batch. With blocks of 16 it does not: one row and several go through
kernels that add up in the same order, on AVX512-VNNI and on AVX2, as with 8 bits in blocks of 32.
Others do differ: 4 bits in blocks of 32 (AVX2) or 64, 8 bits in blocks of 128.

The inputs that are far larger than the others (`export.bundling.outliers`) are multiplied in fp32,
beside the operator, which gets zeros for them. With blocks of 16 instead of 32 that brings the mean
error of SmolLM2's log-probabilities from 0.076 to 0.030 nats in int8 (loadtest/LOG.md).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from export.graph.functions import BLOCK_QUANTIZED_LINEAR, parse_function
from export.graph.writer import Array, GraphWriter, Value

NO_OUTLIERS: Mapping[str, Array] = {}
OBSERVED = "largest."  # prefix of outputs: a matrix's largest inputs
BLOCK = 16  # inputs that share a scale
SOURCE_BLOCK = 32  # of GGUF's formats, but those that have a scale for 16 weights
HALVES = SOURCE_BLOCK // BLOCK
EIGHT_BITS, OF_MXFP4 = 127, 120  # the largest value
TOLERANCE = 1e-5  # of a quantised value, for rounding in fp32
SMALLEST_SCALE = 1e-12
ROWS_AT_ONCE = 2048  # quantised together: several arrays of their size are made
NUM_SAMPLE_ROWS = 64  # that say whether a matrix comes from MXFP4


class BlockQuantiser:
    """Linear layers in 8 or 4 bits, and tables of words, which are always in 8.

    outliers: inputs that are multiplied in fp32, by weight name; None: the graph puts out how large
    inputs are.
    """

    def __init__(
        self, graph: GraphWriter, bits: int, outliers: Mapping[str, Array] | None = NO_OUTLIERS
    ) -> None:
        self._graph, self._bits, self._outliers = graph, bits, outliers
        self._block_sums: dict[tuple[Value, int], Value] = {}

    def linear(self, x: Value, name: str, weight: Array, bias: Array | None) -> Value:
        """Multiply x [..., in] by weight [out, in] transposed and add bias [out]: [..., out]."""
        if self._bits == 8:
            return self.score(x, name, weight, bias)
        quantised, scale, rest = four_bits(weight)
        small, of_large = self._split_outliers(x, name, weight)
        y = self._multiply(small, name, weight.shape, 4, pack_blocks(quantised), scale, bias)
        if rest.any():
            y = y + self._times_rest(small, name, rest, weight.shape[1])
        return y if of_large is None else y + of_large

    def score(self, x: Value, name: str, table: Array, bias: Array | None) -> Value:
        """Multiply x [..., in] by a table of words [words, in]: [..., words]."""
        quantised, scale = eight_bits(table)
        small, of_large = self._split_outliers(x, name, table)
        y = self._multiply(small, name, table.shape, 8, quantised, scale, bias)
        return y if of_large is None else y + of_large

    def _split_outliers(self, x: Value, name: str, weight: Array) -> tuple[Value, Value | None]:
        """Return x with zeros in place of its outlying inputs, and their product with the weight;
        None if there are none.
        """
        graph = self._graph
        columns = self._outlying(x, name, weight.shape[1])
        if columns is None:
            return x, None
        rest = np.ones(weight.shape[1], np.float32)
        rest[columns] = 0
        small = x * graph.weight(f"{name}.small", rest)
        large = graph.op.Gather(x, graph.ints(*columns.tolist()), axis=-1)
        return small, large @ graph.weight(f"{name}.large", weight[:, columns].T.astype(np.float32))

    def lookup(self, ids: Value, name: str, table: Array) -> Value:
        """Look up rows of a table [words, dim] that is stored once for this and `score`."""
        quantised, scale = eight_bits(table)
        return self._graph.ms.GatherBlockQuantized(
            self._graph.weight(
                f"{name}.rows", quantised.reshape(len(table), -1)[:, : table.shape[1]]
            ),
            ids,
            self._graph.weight(f"{name}.scale", scale),
            bits=8,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def _outlying(self, x: Value, name: str, in_dim: int) -> Array | None:
        """Return the numbers of such inputs, if there are any. A loop or a branch cannot put them
        out.
        """
        if self._outliers is None:
            if not self._graph.is_nested:
                self._output_largest(x, name, in_dim)
            return None
        columns = self._outliers.get(name)
        return None if columns is None or not len(columns) else columns

    def _output_largest(self, x: Value, name: str, in_dim: int) -> None:
        """Put out how large each input is, of x [batch, ..., in_dim]."""
        largest = x.abs().reshape(0, -1, in_dim).max(1, keepdims=False)
        self._graph.output(f"{OBSERVED}{name}", largest, "float32", (in_dim,))

    def _multiply(
        self,
        x: Value,
        name: str,
        shape: tuple[int, ...],
        bits: int,
        quantised: Array,
        scale: Array,
        bias: Array | None,
    ) -> Value:
        graph = self._graph
        weights = graph.weight(f"{name}.int{bits}", quantised), graph.weight(f"{name}.scale", scale)
        added = bias if bias is None else graph.weight(f"{name}.bias", bias.astype(np.float32))
        sizes = {"N": shape[0], "K": shape[1], "bits": bits}
        function = parse_function(BLOCK_QUANTIZED_LINEAR)
        return graph.call(function, x, *weights, added, types=[x.dtype], **sizes)[0]

    def _times_rest(self, x: Value, name: str, rest: Array, in_dim: int) -> Value:
        """Multiply the sum of x over a block by `rest`, which every weight of the block has in
        addition [out, blocks].
        """
        size = SOURCE_BLOCK if rest.shape[1] == -(-in_dim // SOURCE_BLOCK) else BLOCK
        if (x, size) not in self._block_sums:
            belongs = np.repeat(np.eye(rest.shape[1], dtype=np.float32), size, axis=0)
            sums = x @ self._graph.weight(f"blocks.{size}.{in_dim}", belongs[:in_dim])
            self._block_sums[x, size] = sums
        return self._block_sums[x, size] @ self._graph.weight(f"{name}.rest", rest.T)


def eight_bits(weight: Array) -> tuple[Array, Array]:
    """Return uint8 values [out, blocks, 16] with zero at 128, and scales [out, blocks].

    Weights that come from 8 bits in blocks of 32 (Q8_0) keep their values, and those of MXFP4 too:
    whatever the largest is of 1, 2, 3, 4, 6, 8 and 12, all are multiples of its 120th part.
    """
    return _by_parts(_eight_bits, weight)


def four_bits(weight: Array) -> tuple[Array, Array, Array]:
    """Return values 0..15, scales of blocks of 16, and `rest` [out, blocks of 32]:

    weight = scale * (level - 8) + rest

    Weights that come from at most 4 bits in blocks of 32 or 16 keep their values; `rest` is 0 if
    these were counted from level 8 (Q4_0, Q3_K), and of blocks of 16 if these are the source's.
    """
    return _by_parts(partial(_four_bits, size=_source_block(weight)), weight)


def _source_block(weight: Array) -> int:
    """Return how many weights have a scale in common, as the first rows show."""
    for size in (SOURCE_BLOCK, BLOCK):
        blocks = in_blocks(weight[:NUM_SAMPLE_ROWS], size)
        if _steps(blocks, blocks.min(axis=2))[1].mean() > 0.5:
            return size
    return SOURCE_BLOCK


def _by_parts(quantise: Callable[[Array], tuple[Array, ...]], weight: Array) -> tuple[Any, ...]:
    """Quantise `ROWS_AT_ONCE` rows at a time, and join what comes of them."""
    starts = range(0, len(weight), ROWS_AT_ONCE)
    parts = [quantise(weight[start : start + ROWS_AT_ONCE]) for start in starts]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _eight_bits(weight: Array) -> tuple[Array, Array]:
    blocks, source = in_blocks(weight, BLOCK), in_blocks(weight, SOURCE_BLOCK)
    steps = _eight_bit_steps(source)
    source_steps = np.where(_lie_on(source, steps), steps, 0)
    source_steps = np.repeat(source_steps, HALVES, axis=1)[:, : blocks.shape[1]]
    sample = blocks[:NUM_SAMPLE_ROWS]
    is_mxfp4 = _lie_on(sample, _eight_bit_steps(sample, OF_MXFP4)).all()
    block_steps = _eight_bit_steps(blocks, OF_MXFP4 if is_mxfp4 else EIGHT_BITS)
    scale = np.where(source_steps > 0, source_steps, block_steps)
    quantised = np.rint(blocks / scale[:, :, None]) + 128
    return quantised.astype(np.uint8), scale


def _eight_bit_steps(blocks: Array, largest_value: int = EIGHT_BITS) -> Array:
    largest = np.maximum(np.abs(blocks).max(axis=2), SMALLEST_SCALE)
    return (largest / np.float32(largest_value)).astype(np.float32)


def _lie_on(blocks: Array, steps: Array) -> Array:
    """Return whether all weights of a block are multiples of the step, as they are if their source
    had such values.
    """
    quantised: Array = blocks / steps[:, :, None]
    distances: Array = np.abs(quantised - np.rint(quantised)).max(axis=2)
    lie_on: Array = np.less(distances, TOLERANCE * 127)
    return lie_on


def _four_bits(weight: Array, size: int) -> tuple[Array, Array, Array]:
    blocks = in_blocks(weight, size)
    low = blocks.min(axis=2)
    step, _ = _steps(blocks, low)
    quantised = np.rint((blocks - low[:, :, None]) / step[:, :, None])
    rest = low + 8 * step
    _centre(quantised, step, rest)
    num_blocks = -(-weight.shape[1] // BLOCK)
    quantised = quantised.astype(np.uint8).reshape(len(weight), -1, BLOCK)[:, :num_blocks]
    return quantised, np.repeat(step, size // BLOCK, axis=1)[:, :num_blocks], rest


def _centre(quantised: Array, step: Array, rest: Array) -> None:
    """Store values relative to 8 in blocks that allow it, so that they need no `rest`. Blocks with
    values from -7 to 8 get a negative scale, as in Q4_0.
    """
    zero = 8 - rest / step  # the level of 0, counted from the lowest
    below = np.rint(zero)
    above = quantised.max(axis=2) - below
    is_whole = np.abs(below - zero) < TOLERANCE
    is_upright = is_whole & (below <= 8) & (above <= 7)
    is_mirrored = is_whole & ~is_upright & (below <= 7) & (above <= 8)
    quantised += np.where(is_upright, 8 - below, 0)[:, :, None]
    quantised[is_mirrored] = (8 + below[:, :, None] - quantised)[is_mirrored]
    step[is_mirrored] *= -1
    rest[is_upright | is_mirrored] = 0


def _steps(blocks: Array, low: Array) -> tuple[Array, Array]:
    """Return the scale, and whether the values of a block lie on 16 values: then it
    is the source's. The smallest gap between two values is one, two or three steps.
    """
    span = np.maximum(blocks.max(axis=2) - low, SMALLEST_SCALE)
    gaps = np.diff(np.sort(blocks, axis=2), axis=2)
    smallest = np.where(gaps > span[:, :, None] / 16, gaps, np.inf).min(axis=2)
    steps, is_grid = span / 15, np.zeros(span.shape, bool)
    for num_steps in (1, 2, 3):
        step = span / np.clip(np.rint(num_steps * span / smallest), 1, 15)
        quantised = (blocks - low[:, :, None]) / step[:, :, None]
        lies_on = (np.abs(quantised - np.rint(quantised)) < TOLERANCE).all(axis=2)
        steps, is_grid = np.where(lies_on & ~is_grid, step, steps), is_grid | lies_on
        if is_grid.all():
            break
    return steps.astype(np.float32), is_grid


def pack_blocks(quantised: Array) -> Array:
    """Pack two values into a byte, the first in the lower half: [out, blocks, 8]."""
    return quantised[:, :, ::2] | quantised[:, :, 1::2] << 4


def in_blocks(weight: Array, size: int) -> Array:
    """Cut [out, in] into [out, blocks, size]; zeros fill the last block."""
    padding = -weight.shape[1] % size
    if padding:
        weight = np.pad(weight, ((0, 0), (0, padding)))
    return weight.reshape(len(weight), -1, size)

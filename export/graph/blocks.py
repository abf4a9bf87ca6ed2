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

import numpy as np

from export.graph.block_levels import BLOCK, SOURCE_BLOCK, eight_bits, four_bits, pack_blocks
from export.graph.functions import BLOCK_QUANTIZED_LINEAR, parse_function
from export.graph.matrix import Matrix
from export.graph.writer import Array, GraphWriter, Value

NO_OUTLIERS: Mapping[str, Array] = {}
OBSERVED = "largest."  # prefix of outputs: a matrix's largest inputs


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

    def linear(self, x: Value, name: str, weight: Matrix, bias: Array | None) -> Value:
        """Multiply x [..., in] by weight [out, in] transposed and add bias [out]: [..., out]."""
        if self._bits == 8:
            return self.score(x, name, weight, bias)

        def quantise() -> dict[str, Array]:
            levels, scale, rest = four_bits(weight.read_parts())
            arrays = {f"{name}.int4": pack_blocks(levels), f"{name}.scale": scale}
            return arrays | {f"{name}.rest": rest.T} if rest.any() else arrays

        weights = self._weights(f"{name}.int4", weight, quantise)
        small, of_large = self._split_outliers(x, name, weight)
        y = self._multiply(small, name, weight.shape, 4, weights, bias)
        if f"{name}.rest" in weights:
            y = y + self._times_rest(small, weights[f"{name}.rest"], weight.shape[1])
        return y if of_large is None else y + of_large

    def score(self, x: Value, name: str, table: Matrix, bias: Array | None) -> Value:
        """Multiply x [..., in] by a table of words [words, in]: [..., words]."""

        def quantise() -> dict[str, Array]:
            levels, scale = eight_bits(table.read_parts())
            return {f"{name}.int8": levels, f"{name}.scale": scale}

        weights = self._weights(f"{name}.int8", table, quantise)
        small, of_large = self._split_outliers(x, name, table)
        y = self._multiply(small, name, table.shape, 8, weights, bias)
        return y if of_large is None else y + of_large

    def lookup(self, ids: Value, name: str, table: Matrix) -> Value:
        """Look up rows of a table [words, dim] that is stored once for this and `score`."""

        def quantise() -> dict[str, Array]:
            levels, scale = eight_bits(table.read_parts())
            rows = levels.reshape(len(levels), -1)[:, : table.shape[1]]
            return {f"{name}.rows": rows, f"{name}.scale": scale}

        weights = self._weights(f"{name}.rows", table, quantise)
        return self._graph.ms.GatherBlockQuantized(
            weights[f"{name}.rows"],
            ids,
            weights[f"{name}.scale"],
            bits=8,
            block_size=BLOCK,
            gather_axis=0,
            quantize_axis=1,
        )

    def observe(self, x: Value, name: str, in_dim: int) -> None:
        """Put out how large each input is, of the tokens of one text: x [..., in_dim]."""
        largest = x.abs().reshape(1, -1, in_dim).max(1, keepdims=False)
        self._graph.output(f"{OBSERVED}{name}", largest, "float32", (in_dim,))

    def _weights(
        self, key: str, weight: Matrix, quantise: Callable[[], Mapping[str, Array]]
    ) -> dict[str, Value]:
        return self._graph.weights(key if weight.is_shared else None, quantise)

    def _split_outliers(self, x: Value, name: str, weight: Matrix) -> tuple[Value, Value | None]:
        """Return x with zeros in place of its outlying inputs, and their product with the weight;
        None if there are none.
        """
        graph = self._graph
        columns = self._outlying(x, name, weight.shape[1])
        if columns is None:
            return x, None
        is_small = np.ones(weight.shape[1], np.float32)
        is_small[columns] = 0
        small = x * graph.weight(f"{name}.small", is_small)
        large = graph.op.Gather(x, graph.ints(*columns.tolist()), axis=-1)
        key = f"{name}.large"

        def read_columns() -> dict[str, Array]:
            return {key: weight.read_columns(columns).T.astype(np.float32)}

        return small, large @ self._weights(key, weight, read_columns)[key]

    def _outlying(self, x: Value, name: str, in_dim: int) -> Array | None:
        """Return the numbers of such inputs, if there are any. A loop or a branch cannot put them
        out.
        """
        if self._outliers is None:
            if not self._graph.is_nested:
                self.observe(x, name, in_dim)
            return None
        columns = self._outliers.get(name)
        return None if columns is None or not len(columns) else columns

    def _multiply(
        self,
        x: Value,
        name: str,
        shape: tuple[int, ...],
        bits: int,
        weights: Mapping[str, Value],
        bias: Array | None,
    ) -> Value:
        graph = self._graph
        quantised = weights[f"{name}.int{bits}"], weights[f"{name}.scale"]
        added = bias if bias is None else graph.weight(f"{name}.bias", bias.astype(np.float32))
        sizes = {"N": shape[0], "K": shape[1], "bits": bits}
        function = parse_function(BLOCK_QUANTIZED_LINEAR)
        return graph.call(function, x, *quantised, added, types=[x.dtype], **sizes)[0]

    def _times_rest(self, x: Value, rest: Value, in_dim: int) -> Value:
        """Multiply the sum of x over a block by `rest` [blocks, out], which every weight of the
        block has in addition.
        """
        assert rest.bare.shape is not None, "a weight has a shape"
        num_blocks = rest.bare.shape.numpy()[0]
        size = SOURCE_BLOCK if num_blocks == -(-in_dim // SOURCE_BLOCK) else BLOCK
        if (x, size) not in self._block_sums:
            belongs = np.repeat(np.eye(num_blocks, dtype=np.float32), size, axis=0)
            sums = x @ self._graph.weight(f"blocks.{size}.{in_dim}", belongs[:in_dim])
            self._block_sums[x, size] = sums
        return self._block_sums[x, size] @ rest

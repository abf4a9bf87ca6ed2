"""Weights in blocks: close to the float product, 4-bit sources kept to the bit, rows apart."""

import gguf
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Kind

from export.graph.block_levels import BLOCK, eight_bits, four_bits, in_blocks, pack_blocks
from export.graph.blocks import BlockQuantiser
from export.graph.matrix import Matrix, Part
from export.graph.writer import GraphWriter
from export.readers.gguf.blocks import read_blocks
from models.safetensors import QuantisedBlocks
from tests.export.readers.gguf.test_gguf_tensors import random_blocks
from tests.export.sessions import session_of

RANDOM = np.random.default_rng(0)
NONE = np.zeros(0, np.int64)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


class Product:
    """x times weight transposed, through the quantised graph."""

    def __init__(
        self,
        weight: np.ndarray,
        bits: int,
        bias: np.ndarray | None = None,
        outliers: np.ndarray = NONE,
    ) -> None:
        graph = GraphWriter("product")
        rows = graph.input("x", "float32", (weight.shape[1],))
        matrix, quantiser = (
            Matrix.of_array(weight),
            BlockQuantiser(graph, bits, {"weight": outliers}),
        )
        y = quantiser.linear(rows, "weight", matrix, bias)
        graph.output("y", y, "float32", (len(weight),))
        self.session = session_of(graph)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        (result,) = self.session.run(None, {"x": x})
        return np.asarray(result)


def four_bit_values(*parts: Part, in_dim: int) -> np.ndarray:
    levels, scale, rest = four_bits(parts)
    assert levels.max() <= 15
    values = (levels.astype(np.float32) - 8) * scale[:, :, None]
    values = values.reshape(len(levels), -1)
    size = 16 if rest.shape == scale.shape else 32
    return (values + np.repeat(rest, size, axis=1)[:, : values.shape[1]])[:, :in_dim]


def eight_bit_values(part: Part) -> np.ndarray:
    levels, scale = eight_bits([part])
    values = (levels.astype(np.float32) - 128) * scale[:, :, None]
    return values.reshape(len(levels), -1)


def through(weight: np.ndarray, kind: Kind) -> np.ndarray:
    return gguf.quants.dequantize(gguf.quants.quantize(weight, kind), kind)


@pytest.mark.parametrize("bias", [None, normal(40)])
@pytest.mark.parametrize("in_dim", [64, 80])
@pytest.mark.parametrize("bits", [8, 4])
def test_every_row_is_close_however_loud_the_others_are(
    bits: int, in_dim: int, bias: np.ndarray | None
) -> None:
    """In a block a number lies at most half a step off: an input of its own largest, a weight of
    its scale. So far may a product be, at worst.
    """
    weight = normal(40, in_dim)
    x = normal(6, in_dim) * np.float32(10) ** np.arange(-3, 3, dtype=np.float32)[:, None]
    actual = Product(weight, bits, bias)(x) - (0 if bias is None else bias)
    scale = eight_bits([weight])[1] if bits == 8 else np.abs(four_bits([weight])[1])
    blocks, weight_off = np.abs(in_blocks(x, BLOCK)), scale / 2
    x_off = blocks.max(axis=2) / 254
    bound = x_off @ np.abs(in_blocks(weight, BLOCK)).sum(axis=2).T
    bound += (blocks.sum(axis=2) + BLOCK * x_off) @ weight_off.T
    assert (np.abs(actual - x @ weight.T) <= 1.001 * bound + 1e-6).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_outliers_are_multiplied_as_they_are_and_spoil_no_block(bits: int) -> None:
    weight, x = through(normal(40, 96), Kind.Q4_1 if bits == 4 else Kind.Q8_0), normal(6, 96)
    columns = np.array([3, 17, 79])
    without = np.delete(np.arange(96), columns)
    expected = x[:, without] @ weight[:, without].T
    x[:, columns] *= 1000
    large = x[:, columns] @ weight[:, columns].T
    actual = Product(weight, bits, outliers=columns)(x) - large
    assert np.abs(actual - expected).max() < 0.3 < np.abs(Product(weight, bits)(x) - large).max()


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1])
def test_four_bit_sources_keep_their_values(kind: Kind) -> None:
    weight = through(normal(50, 96), kind)
    weight[3, :32] = 0
    weight[4, :32] = 0.25
    assert np.array_equal(four_bit_values(weight, in_dim=weight.shape[1]), weight)


@pytest.mark.parametrize("kind", [Kind.Q4_K, Kind.Q3_K, Kind.Q2_K])
def test_four_bits_and_less_with_scales_of_their_own_keep_their_values(kind: Kind) -> None:
    """The latter two have a scale for 16 weights."""
    data = random_blocks(kind, seed=0)
    weight = gguf.quants.dequantize(data, kind).astype(np.float32)
    np.testing.assert_allclose(
        four_bit_values(weight, in_dim=weight.shape[1]), weight, rtol=1e-5, atol=1e-4
    )
    x = normal(3, weight.shape[1])
    actual, expected = Product(weight, 4)(x), x @ weight.T
    assert np.abs(actual - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q4_K])
def test_levels_and_scales_of_a_file_in_four_bits_are_taken_as_they_are(kind: Kind) -> None:
    """Offsets are added to levels that are counted from 8, which rounds."""
    data = random_blocks(kind, seed=1)
    blocks, in_dim = read_blocks(kind, data), 2 * GGML_QUANT_SIZES[kind][0]
    expected = gguf.quants.dequantize(data, kind)
    actual = four_bit_values(blocks, in_dim=in_dim)
    if kind is Kind.Q4_0:
        assert np.array_equal(actual, expected)
        assert not four_bits([blocks])[2].any()
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    assert np.array_equal(four_bits([blocks])[0].reshape(len(data), -1) % 16, file_levels(blocks))


def file_levels(blocks: QuantisedBlocks) -> np.ndarray:
    return blocks.levels + (8 if blocks.offset is None else 0)


@pytest.mark.parametrize(
    "kind", [Kind.Q8_0, Kind.Q4_0, Kind.Q5_0, Kind.Q6_K, Kind.IQ4_NL, Kind.MXFP4]
)
def test_levels_and_scales_of_a_file_without_offsets_are_kept_in_8_bits(kind: Kind) -> None:
    data = random_blocks(kind, seed=1)
    blocks = read_blocks(kind, data)
    levels = np.maximum(blocks.levels, -127)  # a file of -128 is quantised anew
    blocks = QuantisedBlocks(levels, blocks.scale)
    assert np.array_equal(eight_bit_values(blocks), blocks.read())


def test_a_level_that_cannot_be_negated_is_quantised_anew() -> None:
    levels = np.full((1, 32), -128, np.int8)
    assert eight_bits([QuantisedBlocks(levels, np.ones((1, 1), np.float32))])[0].min() == 1


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_below_each_other_may_come_from_different_formats(bits: int) -> None:
    q2_k = gguf.quants.dequantize(random_blocks(Kind.Q2_K, seed=0), Kind.Q2_K)
    parts = [read_blocks(kind, random_blocks(kind, seed=2)) for kind in (Kind.Q4_K, Kind.Q6_K)]
    whole = np.concatenate([q2_k, *(part.read() for part in parts)])
    if bits == 4:
        actual = four_bit_values(q2_k, *parts, in_dim=512)
    else:
        actual = np.concatenate([eight_bit_values(q2_k), *map(eight_bit_values, parts)])
    half = np.abs(whole).reshape(len(whole), -1, 32).max(axis=2) / (14 if bits == 4 else 250)
    assert (np.abs(actual - whole) <= np.repeat(half, 32, axis=1)).all()
    assert np.array_equal(actual[-3:], whole[-3:]) == (bits == 8)  # Q6_K


def test_levels_that_are_counted_from_eight_need_no_rest() -> None:
    _, _, rest = four_bits([through(normal(50, 96), Kind.Q4_0)])
    assert not rest.any()
    _, _, rest = four_bits([through(normal(50, 96), Kind.Q4_1)])
    assert rest.any()
    weight = gguf.quants.dequantize(random_blocks(Kind.Q3_K, seed=0), Kind.Q3_K)
    assert not four_bits([weight])[2].any()


def test_other_weights_lie_within_half_a_step() -> None:
    weight = normal(50, 80)
    blocks = np.pad(weight, ((0, 0), (0, 16))).reshape(50, 3, 32)
    half = (blocks.max(axis=2) - blocks.min(axis=2)) / 30 * 1.001
    error = np.abs(four_bit_values(weight, in_dim=weight.shape[1]) - weight)
    assert (error <= np.repeat(half, 32, axis=1)[:, :80]).all()


def test_scales_in_four_bits_are_numbers_of_fp16_unless_these_are_too_coarse() -> None:
    _, scale, _ = four_bits([normal(50, 96)])
    assert np.array_equal(scale, scale.astype(np.float16))
    for factor in (1e-9, 1e9):
        weight = factor * normal(50, 96)
        largest = np.abs(weight).max()
        error = np.abs(four_bit_values(weight, in_dim=96) - weight)
        assert error.max() < largest / 12


def test_eight_bit_sources_keep_their_levels() -> None:
    weight = through(normal(50, 96), Kind.Q8_0)
    weight[3, :32] = 0
    np.testing.assert_allclose(eight_bit_values(weight), weight, rtol=1e-6)


def test_the_levels_of_mxfp4_are_kept() -> None:
    blocks = random_blocks(Kind.MXFP4, seed=0)
    weight = gguf.quants.dequantize(blocks, Kind.MXFP4) * np.float32(1.7)
    np.testing.assert_allclose(eight_bit_values(weight), weight, rtol=1e-6)


@pytest.mark.parametrize("in_dim", [64, 80])
def test_weights_in_8_bits_lie_within_half_a_step(in_dim: int) -> None:
    weight = normal(50, in_dim)
    levels, scale = eight_bits([weight])
    values = (levels.astype(np.float32) - 128) * scale[:, :, None]
    half = np.abs(in_blocks(weight, BLOCK)).max(axis=2, keepdims=True) / 254 * 1.001
    assert (np.abs(values - in_blocks(weight, BLOCK)) <= half).all()


def test_two_levels_lie_in_a_byte() -> None:
    levels = np.arange(16, dtype=np.uint8).reshape(1, 1, 16)
    assert pack_blocks(levels)[0, 0].tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]


def test_rows_of_a_table_are_those_that_are_scored_by() -> None:
    table = normal(30, 64)
    graph = GraphWriter("lookup")
    quantiser = BlockQuantiser(graph, 4)
    ids = graph.input("ids", "int64", ("tokens",))
    rows_of_ids = quantiser.lookup(ids, "table", Matrix.of_array(table))
    graph.output("rows", rows_of_ids, "float32", ("tokens", 64))
    (rows,) = session_of(graph).run(None, {"ids": np.array([[3, 29, 0]])})
    levels, scale = eight_bits([table])
    expected = ((levels.astype(np.float32) - 128) * scale[:, :, None]).reshape(30, 64)
    assert np.array_equal(np.asarray(rows)[0], expected[[3, 29, 0]])


@pytest.mark.parametrize("num_outliers", [0, 1, 21, 64])
@pytest.mark.parametrize("bits", [8, 4])
def test_a_row_is_the_same_alone_and_among_any_number(bits: int, num_outliers: int) -> None:
    """This rests on ONNX Runtime's kernels for the processor at hand, which is why it is here."""
    of_source = gguf.quants.dequantize(random_blocks(Kind.Q2_K, seed=0), Kind.Q2_K)
    for weight in (normal(96, 576), normal(37, 80), normal(300, 256), of_source):
        out_dim, in_dim = weight.shape
        outliers = RANDOM.permutation(in_dim)[:num_outliers]
        product = Product(weight, bits, outliers=outliers)
        x = normal(65, in_dim)
        alone = np.concatenate([product(row[None]) for row in x])
        for count in (2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 65):
            assert np.array_equal(product(x[:count]), alone[:count]), (out_dim, in_dim, count)

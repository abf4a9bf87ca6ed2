"""Tensors of GGUF files, beside plain loops over the bytes of ggml's blocks (ggml-common.h and
ggml-quants.c, dequantize_row_*).
"""

import struct
from collections.abc import Callable

import gguf
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Kind

from export.readers.gguf.blocks import FORMATS, read_blocks
from export.readers.gguf.container import READABLE, Tensor

ROWS, BLOCKS = 3, 2


def half(data: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", data, at)[0])


def nibbles(data: bytes) -> list[int]:
    """The lower halves of all bytes, then the upper halves."""
    return [byte & 15 for byte in data] + [byte >> 4 for byte in data]


def q8_0(block: bytes) -> list[float]:
    return [half(block, 0) * level for level in struct.unpack_from("<32b", block, 2)]


def q4_0(block: bytes) -> list[float]:
    return [half(block, 0) * (level - 8) for level in nibbles(block[2:18])]


def q4_1(block: bytes) -> list[float]:
    return [half(block, 0) * level + half(block, 2) for level in nibbles(block[4:20])]


def fifth_bits(block: bytes, at: int) -> list[int]:
    bits = int.from_bytes(block[at : at + 4], "little")
    return [(bits >> i & 1) << 4 for i in range(32)]


def q5_0(block: bytes) -> list[float]:
    levels = zip(nibbles(block[6:22]), fifth_bits(block, 2), strict=True)
    return [half(block, 0) * ((low | high) - 16) for low, high in levels]


def q5_1(block: bytes) -> list[float]:
    levels = zip(nibbles(block[8:24]), fifth_bits(block, 4), strict=True)
    return [half(block, 0) * (low | high) + half(block, 2) for low, high in levels]


def scale_and_minimum(packed: bytes, i: int) -> tuple[int, int]:
    """get_scale_min_k4: 8 pairs of 6 bits in 12 bytes."""
    if i < 4:
        return packed[i] & 63, packed[i + 4] & 63
    low, high = packed[i + 4], packed[i - 4] >> 6
    return low & 15 | high << 4, low >> 4 | packed[i] >> 6 << 4


def k_block(block: bytes, levels: list[int]) -> list[float]:
    """Eight parts of 32 levels, each with a scale and a minimum."""
    values = []
    for i, level in enumerate(levels):
        scale, minimum = scale_and_minimum(block[4:16], i // 32)
        values.append(half(block, 0) * scale * level - half(block, 2) * minimum)
    return values


def low_levels(data: bytes) -> list[int]:
    """32 bytes hold 32 levels in their lower halves and the next 32 in their upper ones."""
    return [level for at in range(0, 128, 32) for level in nibbles(data[at : at + 32])]


def q4_k(block: bytes) -> list[float]:
    return k_block(block, low_levels(block[16:144]))


def q5_k(block: bytes) -> list[float]:
    high, low = block[16:48], low_levels(block[48:176])
    return k_block(block, [low[i] | (high[i % 32] >> i // 32 & 1) << 4 for i in range(256)])


def q6_k(block: bytes) -> list[float]:
    low, high, scales = block[:128], block[128:192], struct.unpack_from("<16b", block, 192)
    values = []
    for i in range(256):
        part, place = divmod(i, 128)  # of 128 levels each
        quarter, column = divmod(place, 32)
        byte = low[64 * part + 32 * (quarter % 2) + column]
        level = byte & 15 if quarter < 2 else byte >> 4
        level |= (high[32 * part + column] >> 2 * quarter & 3) << 4
        values.append(half(block, 208) * scales[i // 16] * (level - 32))
    return values


def q2_k(block: bytes) -> list[float]:
    """16 levels of two bits have a scale and a minimum of four; levels lie as those of q3_k."""
    levels = two_bits(block[16:80])
    d, minimum = half(block, 80), half(block, 82)
    return [
        d * (block[i // 16] & 15) * level - minimum * (block[i // 16] >> 4)
        for i, level in enumerate(levels)
    ]


def two_bits(data: bytes) -> list[int]:
    """32 bytes hold 128 levels: the lowest two bits of all, then the next."""
    parts = [data[at : at + 32] for at in range(0, len(data), 32)]
    return [byte >> shift & 3 for part in parts for shift in (0, 2, 4, 6) for byte in part]


def q3_k(block: bytes) -> list[float]:
    """The third bit, where it is 0, stands for -4."""
    high, low, packed = block[:32], two_bits(block[32:96]), block[96:108]
    values = []
    for i, level in enumerate(low):
        part = i // 16
        scale = packed[part % 8] >> 4 * (part // 8) & 15
        scale |= (packed[8 + part % 4] >> 2 * (part // 4) & 3) << 4
        third = high[i % 32] >> i // 32 & 1
        values.append(half(block, 108) * (scale - 32) * (level - 4 * (1 - third)))
    return values


UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def iq4_nl(block: bytes) -> list[float]:
    return [half(block, 0) * UNEVEN[level] for level in nibbles(block[2:18])]


def iq4_xs(block: bytes) -> list[float]:
    """Eight parts of 32 levels, each with a scale of six bits."""
    high = int.from_bytes(block[2:4], "little")
    values = []
    for part in range(8):
        scale = block[4 + part // 2] >> 4 * (part % 2) & 15 | (high >> 2 * part & 3) << 4
        levels = nibbles(block[8 + 16 * part : 24 + 16 * part])
        values += [half(block, 0) * (scale - 32) * UNEVEN[level] for level in levels]
    return values


def mxfp4(block: bytes) -> list[float]:
    """Floats of four bits (OCP's E2M1) and a power of two."""
    numbers = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    signed = [*numbers, *(-number for number in numbers)]
    return [signed[level] * 2.0 ** (block[0] - 127) for level in nibbles(block[1:17])]


def floats(code: str) -> Callable[[bytes], list[float]]:
    return lambda block: [float(value) for value in struct.unpack(f"<{code}", block)]


def bf16(block: bytes) -> list[float]:
    return [float(struct.unpack("<f", b"\0\0" + block)[0])]


PLAIN: dict[Kind, Callable[[bytes], list[float]]] = {
    Kind.F32: floats("f"),
    Kind.F16: floats("e"),
    Kind.BF16: bf16,
    Kind.Q8_0: q8_0,
    Kind.Q4_0: q4_0,
    Kind.Q4_1: q4_1,
    Kind.Q5_0: q5_0,
    Kind.Q5_1: q5_1,
    Kind.Q4_K: q4_k,
    Kind.Q5_K: q5_k,
    Kind.Q6_K: q6_k,
    Kind.Q2_K: q2_k,
    Kind.Q3_K: q3_k,
    Kind.IQ4_NL: iq4_nl,
    Kind.IQ4_XS: iq4_xs,
    Kind.MXFP4: mxfp4,
}
HALVES = {Kind.F16: [0], Kind.Q6_K: [208], Kind.Q8_0: [0], Kind.Q4_0: [0], Kind.Q5_0: [0]}
HALVES |= {Kind.Q2_K: [80, 82], Kind.Q3_K: [108], Kind.IQ4_NL: [0], Kind.IQ4_XS: [0]}


def random_blocks(kind: Kind, seed: int) -> np.ndarray:
    """[rows, bytes], whose scales are small numbers."""
    random = np.random.default_rng(seed)
    size = GGML_QUANT_SIZES[kind][1]
    blocks = random.integers(0, 256, (ROWS * BLOCKS, size), dtype=np.uint8)
    if kind in (Kind.F32, Kind.BF16):
        whole = random.standard_normal(ROWS * BLOCKS).astype("<f4")[:, None].view(np.uint8)
        blocks = np.ascontiguousarray(whole[:, 4 - size :])
    elif kind is Kind.MXFP4:
        blocks[:, 0] = random.integers(120, 130, ROWS * BLOCKS)
    else:
        for at in HALVES.get(kind, [0, 2]):
            scale = random.uniform(-1, 1, ROWS * BLOCKS).astype("<f2")
            blocks[:, at : at + 2] = scale[:, None].view(np.uint8)
    return blocks.reshape(ROWS, -1)


def test_each_type_is_here() -> None:
    assert PLAIN.keys() == READABLE


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
def test_values_are_those_of_a_plain_loop(kind: Kind) -> None:
    block, size = GGML_QUANT_SIZES[kind]
    data = random_blocks(kind, seed=int(kind))
    found = Tensor(kind, (ROWS, BLOCKS * block), data).read()
    raw = data.tobytes()
    values = [v for at in range(0, len(raw), size) for v in PLAIN[kind](raw[at : at + size])]
    expected = np.array(values, np.float32).reshape(ROWS, BLOCKS * block)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert np.array_equal(found, gguf.quants.dequantize(data, kind).reshape(found.shape))


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_some_columns_are_those_of_the_whole(kind: Kind) -> None:
    blocks = read_blocks(kind, random_blocks(kind, seed=int(kind)))
    columns = np.array([0, 15, 16, 33, blocks.levels.shape[1] - 1])
    assert np.array_equal(blocks.read_columns(columns), blocks.read()[:, columns])

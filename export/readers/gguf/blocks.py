"""Levels and scales of GGUF's quantised tensors, as their blocks of 32 or 256 weights hold them
(ggml-common.h). Products of both are what `gguf.quants.dequantize` returns, to the bit.
"""

from collections.abc import Callable

import numpy as np
from gguf.constants import GGMLQuantizationType as TensorType
from gguf.quants import IQ4_NL, MXFP4, Q4_K

from models.safetensors import Array, QuantisedBlocks

K_BLOCK = 256  # weights of a block of the K formats


def read_blocks(kind: TensorType, data: Array) -> QuantisedBlocks:
    """Return the levels and scales of uint8 rows [rows, bytes] of a kind that is in `FORMATS`."""
    read, num_bytes = FORMATS[kind]
    levels, scale, offset = read(data.reshape(len(data), -1, num_bytes))
    parts = (part.reshape(len(data), -1) for part in (scale, offset) if part is not None)
    return QuantisedBlocks(levels.reshape(len(data), -1), *parts)


# Formats read blocks uint8 [rows, blocks, bytes] and return levels int8 [rows, blocks, ...], scales
# f32 [rows, blocks, ...] and offsets or None.
Parts = tuple[Array, Array, Array | None]


def _q4_0(blocks: Array) -> Parts:
    return _nibbles(blocks[:, :, 2:]) - np.int8(8), _half(blocks, 0), None


def _q4_1(blocks: Array) -> Parts:
    return _nibbles(blocks[:, :, 4:]), _half(blocks, 0), _half(blocks, 2)


def _q5_0(blocks: Array) -> Parts:
    fifth_bits = np.unpackbits(blocks[:, :, 2:6], axis=2, bitorder="little").view(np.int8)
    return (_nibbles(blocks[:, :, 6:]) | fifth_bits << 4) - np.int8(16), _half(blocks, 0), None


def _q8_0(blocks: Array) -> Parts:
    return blocks[:, :, 2:].view(np.int8), _half(blocks, 0), None


def _q4_k(blocks: Array) -> Parts:
    """Eight scales and minimums of 6 bits for 32 weights each."""
    rows, num_blocks, _ = blocks.shape
    packed = np.ascontiguousarray(blocks[:, :, 4:16]).reshape(-1, 12)
    scales, minimums = (part.astype(np.float32) for part in Q4_K.get_scale_min(packed))
    shape = rows, num_blocks, 8
    scale = _half(blocks, 0)[:, :, None] * scales.reshape(shape)
    minimum = _half(blocks, 2)[:, :, None] * minimums.reshape(shape)
    levels = _nibbles(blocks[:, :, 16:].reshape(rows, -1, 32))
    return levels, scale, -minimum


def _q6_k(blocks: Array) -> Parts:
    """Sixteen scales of 8 bits for 16 weights each; four lower bits of each level lie apart from
    two upper ones.
    """
    rows, num_blocks, _ = blocks.shape
    lower = blocks[:, :, :128].reshape(rows, num_blocks, 2, 1, 64) >> LOW_AND_HIGH & 15
    upper = blocks[:, :, 128:192].reshape(rows, num_blocks, 2, 1, 32) >> PAIRS_OF_BITS & 3
    shape = rows, num_blocks, K_BLOCK
    levels = (lower.reshape(shape) | upper.reshape(shape) << 4).view(np.int8) - np.int8(32)
    scales = blocks[:, :, 192:208].view(np.int8).astype(np.float32)
    return levels, _half(blocks, 208)[:, :, None] * scales, None


def _iq4_nl(blocks: Array) -> Parts:
    return _values(IQ4_NL.kvalues, blocks[:, :, 2:]), _half(blocks, 0), None


def _mxfp4(blocks: Array) -> Parts:
    return (
        _values(MXFP4.kvalues, blocks[:, :, 1:]),
        MXFP4.e8m0_to_fp32_half(blocks[:, :, 0]),
        None,
    )


LOW_AND_HIGH = np.array([0, 4], np.uint8)[:, None]
PAIRS_OF_BITS = np.array([0, 2, 4, 6], np.uint8)[:, None]


def _half(blocks: Array, start: int) -> Array:
    """Return the 16-bit float that lies in each block: f32 [rows, blocks]."""
    halves = np.ascontiguousarray(blocks[:, :, start : start + 2]).view(np.float16)
    return halves[:, :, 0].astype(np.float32)


def _nibbles(data: Array) -> Array:
    """Return the lower halves of the bytes of a block, then the upper ones: int8 [rows, blocks, 2 *
    bytes].
    """
    return np.concatenate([data & 15, data >> 4], axis=2).view(np.int8)


def _values(values: tuple[int, ...], data: Array) -> Array:
    """Return the values that the halves of bytes number."""
    return np.array(values, np.int8)[_nibbles(data)]


Format = tuple[Callable[[Array], Parts], int]  # with the bytes of a block
FORMATS: dict[TensorType, Format] = {
    TensorType.Q4_0: (_q4_0, 18),
    TensorType.Q4_1: (_q4_1, 20),
    TensorType.Q5_0: (_q5_0, 22),
    TensorType.Q8_0: (_q8_0, 34),
    TensorType.Q4_K: (_q4_k, 144),
    TensorType.Q6_K: (_q6_k, 210),
    TensorType.IQ4_NL: (_iq4_nl, 18),
    TensorType.MXFP4: (_mxfp4, 17),
}

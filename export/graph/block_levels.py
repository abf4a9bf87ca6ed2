"""Weights [out, in] as levels in blocks of a row, with a scale for each block.

Blocks lie in columns while they are quantised: NumPy reduces and broadcasts long rows ten times as
fast as rows of 16 numbers.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from export.graph.matrix import Part, join
from export.graph.writer import Array
from models.safetensors import QuantisedBlocks

BLOCK = 16  # inputs that share a scale
SOURCE_BLOCK = 32  # of GGUF's formats, but those that have a scale for 16 weights
HALVES = SOURCE_BLOCK // BLOCK
EIGHT_BITS, OF_MXFP4 = 127, 120  # the largest value
ZERO_LEVEL = 128  # of 8 bits
NUM_LEVELS, CENTRE = 16, 8  # of 4 bits: as many, counted from there
TOLERANCE = 1e-5  # of a quantised value, for rounding in fp32
SMALLEST_SCALE = np.float32(1e-12)
WEIGHTS_AT_ONCE = 2**17  # quantised together: what is made of them stays in a processor's cache
NUM_SAMPLE_ROWS = 64  # that say whether a matrix was quantised in its source


def eight_bits(parts: Sequence[Part]) -> tuple[Array, Array]:
    """Return uint8 levels [out, blocks, 16] with zero at 128, and scales [out, blocks], of weights
    that lie below each other.

    Levels of the source are kept if they have no offset. So are the values of floats that come from
    8 bits in blocks of 32 (Q8_0) or from MXFP4: whatever the largest is of 1, 2, 3, 4, 6, 8 and 12,
    all are multiples of its 120th part.
    """
    levels, scales = zip(*map(_eight_bits_of_part, parts), strict=True)
    return join(levels), join(scales)


def four_bits(parts: Sequence[Part]) -> tuple[Array, Array, Array]:
    """Return levels 0..15 [out, blocks, 16], scales of blocks of 16, and `rest` [out, blocks of 32
    or 16], of weights that lie below each other:

    weight = scale * (level - 8) + rest

    Levels of the source are kept if they fit into 4 bits. So are the values of floats that come
    from at most 4 bits in blocks of 32 or 16; `rest` is 0 if these were counted from level 8 (Q4_0,
    Q3_K), and of blocks of 16 if these are the source's.
    """
    levels, scales, rests = zip(*map(_four_bits_of_part, parts), strict=True)
    num_blocks = max(rest.shape[1] for rest in rests)
    rests = tuple(
        rest if rest.shape[1] == num_blocks else np.repeat(rest, HALVES, axis=1)[:, :num_blocks]
        for rest in rests
    )
    return join(levels), join(scales), join(rests)


def pack_blocks(quantised: Array) -> Array:
    """Pack two values into a byte, the first in the lower half: [out, blocks, 8]."""
    return quantised[:, :, ::2] | quantised[:, :, 1::2] << 4


def in_blocks(weight: Array, size: int) -> Array:
    """Cut [out, in] into [out, blocks, size]; zeros fill the last block."""
    padding = -weight.shape[1] % size
    if padding:
        weight = np.pad(weight, ((0, 0), (0, padding)))
    return weight.reshape(len(weight), -1, size)


def _eight_bits_of_part(part: Part) -> tuple[Array, Array]:
    if isinstance(part, QuantisedBlocks):
        # Kernels for processors without VNNI negate levels.
        if part.offset is None and part.levels.min() >= -EIGHT_BITS:
            levels = part.levels.view(np.uint8) ^ np.uint8(ZERO_LEVEL)
            return in_blocks(levels, BLOCK), _scales_of_16(part)
        part = part.read()
    sample = part[:NUM_SAMPLE_ROWS]
    for size, largest_value in ((SOURCE_BLOCK, EIGHT_BITS), (BLOCK, OF_MXFP4)):
        blocks = in_blocks(sample, size)
        if _lie_on(blocks, _eight_bit_steps(blocks, largest_value)).mean() > 0.5:
            return _by_parts(_eight_bits_of_source, part)
    return _by_parts(_eight_bits, part)


def _four_bits_of_part(part: Part) -> tuple[Array, Array, Array]:
    if isinstance(part, QuantisedBlocks):
        least = part.levels.min()
        zero = 0 if part.offset is not None else CENTRE
        if least >= -zero and part.levels.max() < NUM_LEVELS - zero:
            levels = in_blocks((part.levels + np.int8(zero)).view(np.uint8), BLOCK)
            rest = np.zeros_like(part.scale)
            if part.offset is not None:
                rest = part.offset + CENTRE * part.scale
            return levels, _scales_of_16(part), rest
        part = part.read()
    sample = part[:NUM_SAMPLE_ROWS]
    for size in (SOURCE_BLOCK, BLOCK):
        columns = _as_columns(sample, size)
        if _find_steps(columns, columns.min(axis=0))[1].mean() > 0.5:
            return _by_parts(partial(_four_bits, size=size, is_of_source=True), part)
    return _by_parts(partial(_four_bits, size=SOURCE_BLOCK, is_of_source=False), part)


def _scales_of_16(part: QuantisedBlocks) -> Array:
    """Return the scales of blocks of 16."""
    return np.repeat(part.scale, part.block_size // BLOCK, axis=1)


def _by_parts(quantise: Callable[[Array], tuple[Array, ...]], weight: Array) -> tuple[Any, ...]:
    """Quantise some rows at a time, on all processors, and join what comes of them."""
    num_rows = max(WEIGHTS_AT_ONCE // weight.shape[1], 1)
    parts = [weight[start : start + num_rows] for start in range(0, len(weight), num_rows)]
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(quantise, parts))
    return tuple(np.concatenate(arrays) for arrays in zip(*results, strict=True))


def _as_columns(weight: Array, size: int) -> Array:
    """Copy the blocks of [out, in], row after row, into columns [size, out * blocks]."""
    return np.ascontiguousarray(in_blocks(weight, size).reshape(-1, size).T)


def _eight_bits(weight: Array) -> tuple[Array, Array]:
    columns = _as_columns(weight, BLOCK)
    largest = np.maximum(columns.max(axis=0), -columns.min(axis=0))
    scale = np.maximum(largest, SMALLEST_SCALE) / np.float32(EIGHT_BITS)
    columns /= scale
    np.rint(columns, out=columns)
    columns += ZERO_LEVEL
    levels = columns.astype(np.uint8).T.reshape(len(weight), -1, BLOCK)
    return levels, scale.reshape(len(weight), -1)


def _eight_bits_of_source(weight: Array) -> tuple[Array, Array]:
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


def _four_bits(weight: Array, size: int, is_of_source: bool) -> tuple[Array, Array, Array]:
    columns = _as_columns(weight, size)
    low, high = columns.min(axis=0), columns.max(axis=0)
    if is_of_source:
        step, _ = _find_steps(columns, low)
    else:
        step = _round_to_half(np.maximum(high - low, SMALLEST_SCALE) / np.float32(15))
    columns -= low
    columns /= step
    np.rint(columns, out=columns)
    rest = low + 8 * step
    _centre(columns, step, rest)
    num_rows, num_blocks = len(weight), -(-weight.shape[1] // BLOCK)
    levels = columns.astype(np.uint8).T.reshape(num_rows, -1, BLOCK)[:, :num_blocks]
    scale = np.repeat(step.reshape(num_rows, -1), size // BLOCK, axis=1)[:, :num_blocks]
    return levels, scale, rest.reshape(num_rows, -1)


def _round_to_half(scale: Array) -> Array:
    """Round scales to fp16, as which kernels store them in half the memory, but for those that are
    too large or too small to be rounded by at most 2**-11 of themselves.
    """
    with np.errstate(over="ignore"):
        rounded = scale.astype(np.float16).astype(np.float32)
    return np.where(np.abs(rounded - scale) <= scale * np.float32(2**-11), rounded, scale)


def _centre(columns: Array, step: Array, rest: Array) -> None:
    """Store values relative to 8 in blocks that allow it, so that they need no `rest`. Blocks with
    values from -7 to 8 get a negative scale, as in Q4_0.
    """
    zero = 8 - rest / step  # the level of 0, counted from the lowest
    below = np.rint(zero)
    above = columns.max(axis=0) - below
    is_whole = np.abs(below - zero) < TOLERANCE
    is_upright = is_whole & (below <= 8) & (above <= 7)
    is_mirrored = is_whole & ~is_upright & (below <= 7) & (above <= 8)
    if is_upright.any():
        columns += np.where(is_upright, 8 - below, 0)
    if is_mirrored.any():
        columns[:, is_mirrored] = 8 + below[is_mirrored] - columns[:, is_mirrored]
        step[is_mirrored] *= -1
    rest[is_upright | is_mirrored] = 0


def _find_steps(columns: Array, low: Array) -> tuple[Array, Array]:
    """Return the scale of each block, and whether the values of a block lie on 16 values: then it
    is the source's. The smallest gap between two values is one, two or three steps.
    """
    span = np.maximum(columns.max(axis=0) - low, SMALLEST_SCALE)
    gaps = np.diff(np.sort(columns, axis=0), axis=0)
    smallest = np.where(gaps > span / 16, gaps, np.inf).min(axis=0)
    steps, is_grid = span / 15, np.zeros(span.shape, bool)
    for num_steps in (1, 2, 3):
        step = span / np.clip(np.rint(num_steps * span / smallest), 1, 15)
        quantised = (columns - low) / step
        lies_on = (np.abs(quantised - np.rint(quantised)) < TOLERANCE).all(axis=0)
        steps, is_grid = np.where(lies_on & ~is_grid, step, steps), is_grid | lies_on
        if is_grid.all():
            break
    return steps.astype(np.float32), is_grid

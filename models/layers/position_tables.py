"""Tables of positions that torch and graphs share, in double precision: sinusoids, rotations,
buckets of distances (Raffel et al. 2020, 2.1; He et al. 2021, 3.1) and slopes (Press et al. 2022,
3).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def sinusoids(num_positions: int, dim: int) -> Array:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = cos(...): [positions, dim]
    (Vaswani et al. 2017, 3.5).
    """
    rate = np.exp(np.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angle = np.arange(num_positions)[:, None] * rate
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(num_positions, dim)


def rotations(
    num_positions: int, frequencies: Sequence[float], magnitude: float
) -> tuple[Array, Array]:
    """Return cos and sin of position * frequency, times `magnitude`: each [positions, pairs] (Su et
    al. 2021).
    """
    angle = np.arange(num_positions)[:, None] * np.array(frequencies)
    return np.cos(angle) * magnitude, np.sin(angle) * magnitude


def query_growth(num_positions: int, rate: float, length: int) -> Array:
    """Return what queries are multiplied by, 1 + rate * log(1 + floor(position / length)):
    [positions, 1] (Llama 4, Meta 2025).
    """
    return 1 + rate * np.log1p(np.arange(num_positions)[:, None] // length)


def linear_slopes(num_heads: int) -> list[float]:
    """Return how much each head lowers a score per position of distance: 2^(-8/n), 2^(-16/n), ...,
    2^-8 for n heads. If n is no power of 2: those of the power below, then every other one of the
    power above, as in the paper's code.
    """
    power = 2 ** int(math.log2(num_heads))
    steps = [*range(2, 2 * power + 1, 2), *range(1, 2 * (num_heads - power), 2)]
    return [2.0 ** (-4 * step / power) for step in steps]


def relative_buckets(num_buckets: int, max_distance: int, *, bidirectional: bool) -> list[int]:
    """Return the buckets of offsets -max_distance..max_distance, key position minus query position.

    Offsets beyond share their side's last bucket. If `bidirectional`, keys after the query have
    half of the buckets, else they have that of offset 0.
    """
    offsets = range(-max_distance, max_distance + 1)
    if not bidirectional:
        return [_bucket(max(-offset, 0), num_buckets, max_distance) for offset in offsets]
    half = num_buckets // 2
    return [
        _bucket(abs(offset), half, max_distance) + (half if offset > 0 else 0) for offset in offsets
    ]


def _bucket(distance: int, num_buckets: int, max_distance: int) -> int:
    """Single distances have half of the buckets; sizes of the others grow with the logarithm."""
    exact = num_buckets // 2
    if distance < exact:
        return distance
    growth = math.log(distance / exact) / math.log(max_distance / exact)
    return min(exact + int(growth * (num_buckets - exact)), num_buckets - 1)


def disentangled_buckets(
    num_positions: int, num_buckets: int, max_distance: int | None
) -> list[int]:
    """Return the buckets of offsets 1 - num_positions..num_positions - 1, query position minus key
    position, among 2 * num_buckets. Those beyond the last of their side share it.

    max_distance: None: each offset is a bucket; else only small ones are, and sizes of the others
    grow with the logarithm, in single precision, as DeBERTa v2 was trained.
    """
    offsets = np.arange(1 - num_positions, num_positions)
    if max_distance is not None:
        half = num_buckets // 2
        distance = np.maximum(np.abs(offsets), half).astype(np.float32)
        growth = np.log(distance / np.float32(half)) / np.log(np.float32((max_distance - 1) / half))
        rounded = np.ceil(growth * np.float32(half - 1)) + half
        offsets = np.where(np.abs(offsets) <= half, offsets, rounded * np.sign(offsets))
    buckets: list[int] = (offsets + num_buckets).clip(0, 2 * num_buckets - 1).astype(int).tolist()
    return buckets

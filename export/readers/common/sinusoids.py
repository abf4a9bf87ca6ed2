"""Computes tables of positions as other toolkits do: sines, then cosines."""

import math
from typing import Literal

import numpy as np

from models.arrays import Array


def sinusoids(
    shape: tuple[int, ...],
    first: int = 0,
    *,
    rates: Literal["vaswani", "tensor2tensor"] = "tensor2tensor",
    precision: type[np.floating] = np.float32,
) -> Array:
    """Compute positions from `first` on: f32 [positions, dim]; if dim is odd, the last is 0.

    rates: of pair i of n, 10000^(-i / n) (Vaswani et al. 2017), or 10000^(-i / (n - 1)), of which
        the last is 1/10000 exactly (tensor2tensor, and what came after it).
    precision: what the angles are computed in, as the toolkit did.
    """
    num_positions, dim = shape
    pairs = np.arange(dim // 2, dtype=precision)
    positions = np.arange(first, first + num_positions, dtype=precision)[:, None]
    if rates == "vaswani":
        angles = positions / 10000.0 ** (2 * pairs / dim)
    else:
        step = precision(-math.log(10000) / max(len(pairs) - 1, 1))
        angles = positions * np.exp(pairs * step)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return np.pad(table, ((0, 0), (0, dim % 2)))

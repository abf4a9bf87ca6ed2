"""Tabulates what positions add or turn, for torch and for graphs: numpy in double precision."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def sinusoids(num_positions: int, dim: int) -> Array:
    """Give PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = cos(...): [positions, dim]
    (Vaswani et al. 2017, 3.5).
    """
    rate = np.exp(np.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angle = np.arange(num_positions)[:, None] * rate
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(num_positions, dim)


def rotations(
    num_positions: int, frequencies: Sequence[float], magnitude: float
) -> tuple[Array, Array]:
    """Give cos and sin of position * frequency, times `magnitude`: each [positions, pairs] (Su et
    al. 2021).
    """
    angle = np.arange(num_positions)[:, None] * np.array(frequencies)
    return np.cos(angle) * magnitude, np.sin(angle) * magnitude

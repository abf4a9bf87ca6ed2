"""Tables of positions that other toolkits compute in their own ways."""

import numpy as np

from models.arrays import Array


def concatenated(num_positions: int, dim: int, first: int = 0) -> Array:
    """[num_positions, dim] from position `first` on: sines, then cosines, of wavelengths from 2 pi
    to 10000 * 2 pi. So tensor2tensor has them, fairseq (`SinusoidalPositionalEmbedding`) and
    OpenNMT-py ("SinusoidalConcat").
    """
    half = dim // 2
    step = np.float32(np.log(10000) / (half - 1))
    frequencies = np.exp(-step * np.arange(half, dtype=np.float32))
    positions = np.arange(first, first + num_positions, dtype=np.float32)
    angles = positions[:, None] * frequencies
    table = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    return np.pad(table, ((0, 0), (0, dim - 2 * half)))

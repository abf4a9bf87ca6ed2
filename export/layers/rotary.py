"""Tables of rotary position embeddings for ONNX Runtime's attention (Su et al. 2021)."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from export.graph.writer import Array, Value
from export.layers.basic import Layers
from export.layers.heads import PAIRS


def rotary_tables(
    layers: Layers, num_positions: int, frequencies: Sequence[float], magnitude: float, name: str
) -> tuple[Value, Value] | None:
    """cos and sin, times ``magnitude``, of position * frequency: each [positions, pairs]; without
    frequencies none. The operator rotates as many pairs of a head as the tables are wide; those
    that `export.layers.heads` adds stay as they are.
    """
    if not frequencies:
        return None
    cos, sin = _tables(num_positions, tuple(frequencies), magnitude)
    return layers.float_weight(f"{name}.cos", cos), layers.float_weight(f"{name}.sin", sin)


@lru_cache(maxsize=2)  # every layer asks for them
def _tables(
    num_positions: int, frequencies: tuple[float, ...], magnitude: float
) -> tuple[Array, Array]:
    angle = np.arange(num_positions)[:, None] * np.array(frequencies)
    more = ((0, 0), (0, -len(frequencies) % PAIRS))
    cos, sin = np.cos(angle) * magnitude, np.sin(angle) * magnitude
    return np.pad(cos, more, constant_values=1), np.pad(sin, more)

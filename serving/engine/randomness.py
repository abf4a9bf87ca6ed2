"""Random numbers that depend on nothing but their key: Philox, a counter-based generator (Salmon et
al., 2011).
"""

import numpy as np

from serving.engine.memory import Array


def uniforms(seed: int, stream: int, count: int) -> Array:
    """float64 in [0, 1) for the positions 0 to count - 1; `seed` is an unsigned 64-bit number, and
    every stream of it is independent of the others.
    """
    key = np.array([seed, stream], np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)

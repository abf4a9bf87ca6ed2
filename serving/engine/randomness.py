"""Random numbers that depend on nothing but their key: Philox, a counter-based generator (Salmon et
al., 2011).
"""

import numpy as np

from serving.engine.memory import Array


def uniforms(seed: int, sample_index: int, count: int) -> Array:
    """float64 in [0, 1) for the positions 0 to count - 1 of one sample; `seed` is an unsigned
    64-bit number.
    """
    key = np.array([seed, sample_index], np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)

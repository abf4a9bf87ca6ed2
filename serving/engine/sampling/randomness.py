"""Random numbers that depend on nothing but their key: Philox, a counter-based generator (Salmon et
al., 2011).
"""

import numpy as np

from serving.arrays import Array


class Uniforms:
    """Draws for one key after the other. To set a generator's state takes a third of the time that
    a new generator takes.
    """

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._philox)
        self._start = self._philox.state

    def draw(self, seed: int, count: int) -> Array:
        """float64 in [0, 1), two for each of the positions 0 to count - 1: [count, 2]; `seed` is an
        unsigned 64-bit number.
        """
        self._start["state"]["key"][0] = seed
        self._philox.state = self._start
        return self._generator.random((count, 2))

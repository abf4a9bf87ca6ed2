"""Where the numbers of an attention head lie, so that ONNX Runtime's operator takes heads of any
size.

It wants certain multiples, and rotates certain multiples of pairs. Zeros fill a head up: they add
nothing to scores, and what is mixed of them meets zeros in the output layer. The scale of scores
stays that of the size that was trained.
"""

from dataclasses import dataclass
from itertools import chain, count, islice

import numpy as np

from export.graph.writer import Array

MULTIPLE = 8  # of heads
PAIRS = 8  # that are rotated together; heads that rotate are multiples of twice as many


@dataclass(frozen=True)
class HeadLayout:
    """places: of each number of a trained head in one of ``padded_size``."""

    places: tuple[int, ...]
    padded_size: int

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def share(self) -> float:
        """How much of a padded head is not padding."""
        return self.size / self.padded_size

    def spread(self, weight: Array) -> Array:
        """[heads * size, ...] -> [heads * padded_size, ...]."""
        if self.places == tuple(range(self.padded_size)):
            return weight
        heads = weight.reshape(-1, self.size, *weight.shape[1:])
        padded = np.zeros((len(heads), self.padded_size, *weight.shape[1:]), weight.dtype)
        padded[:, self.places] = heads
        return padded.reshape(-1, *weight.shape[1:])


def head_layout(size: int, pairs: int = 0) -> HeadLayout:
    """Of heads whose number i is rotated with number i + ``pairs``, for all i below; the others
    stay as they are, some of them between.
    """
    if not pairs:
        return HeadLayout(tuple(range(size)), _up(size, MULTIPLE))
    apart = _up(pairs, PAIRS)
    first, second = range(pairs), range(apart, apart + pairs)
    free = chain(range(pairs, apart), range(apart + pairs, 2 * apart), count(2 * apart))
    places = *first, *second, *islice(free, size - 2 * pairs)
    return HeadLayout(places, _up(max(places) + 1, 2 * PAIRS))


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple

"""Describes what a Marian file holds: named arrays, some in int8, and the model's options."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from models.arrays import Array
from models.storage.stored import Stored

OPTIONS = "special:model.yml"  # the options as YAML, among the arrays
MOST_DIMENSIONS = 8


@dataclass(frozen=True)
class Item:
    """Holds one array, as Marian multiplies by it: [in, out]. `read` gives it as fp32.

    multiplier: of an int8 array, levels to a unit: a weight is level / multiplier.
    """

    shape: tuple[int, ...]
    kind: str
    read: Callable[[], Array]
    multiplier: float | None = None

    @property
    def stored(self) -> Stored:
        return Stored(self.kind, self.shape, self.read)


def num_elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Make vectors rows [1, n], as in Marian."""
    return (1, *shape) if len(shape) == 1 else shape

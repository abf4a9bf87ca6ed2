"""A checkpoint's weights as the builders ask for them; everything that does not fit is collected.

Builders take weights by name and expected shape and never stop at the first problem: a missing
weight is replaced by zeros, and ``finish`` raises with all problems together.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from export.graph import Array
from models.checkpoint import CheckpointError


class Weights:
    """Checked access to fp32 arrays by state-dict name."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._taken: set[str] = set()
        self._problems: dict[str, str] = {}

    def take(self, name: str, *shape: int) -> Array:
        """The weight ``name``, which must have ``shape`` and finite values."""
        self._taken.add(name)
        array = self._arrays.get(name)
        if array is None:
            self._problems[name] = f"{name}: missing"
        elif array.shape != shape:
            found, expected = list(array.shape), list(shape)
            self._problems[name] = f"{name}: has shape {found}, expected {expected}"
        elif not np.isfinite(array).all():
            self._problems[name] = f"{name}: holds values that are not finite"
        else:
            return array
        return np.zeros(shape, np.float32)

    def finish(self, folder: Path) -> None:
        """Raise CheckpointError if anything asked for was wrong or anything given was not used."""
        unused = sorted(self._arrays.keys() - self._taken)
        problems = [*self._problems.values(), *(f"{name}: not expected" for name in unused)]
        if problems:
            raise CheckpointError(folder, problems)

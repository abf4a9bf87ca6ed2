"""Takes a reader's weights from the stored tensors, each of which is needed or is a problem.

A tensor that is missing, of another shape or of no type of floats is a problem, and so is one that
nobody asked for.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from models.arrays import Array
from models.storage.stored import FLOATS, Stored

WeightReader = Callable[[], Array]  # reads a weight when it is needed
Shape = tuple[int, ...]


class Tensors:
    """Stored tensors by name. Base models are saved without `prefix`, which the names given here
    begin with.
    """

    def __init__(self, stored: Mapping[str, Stored], problems: list[str]) -> None:
        self.stored, self.prefix = stored, ""
        self._problems = problems
        self._taken: dict[tuple[str, Shape], WeightReader] = {}
        self._needless: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._resolved(name) in self.stored

    def __len__(self) -> int:
        return len(self.stored)

    def take(self, name: str, shape: Shape) -> WeightReader:
        """Check that the tensor `name` is there and has `shape`; it is read as fp32."""
        key = (self._resolved(name), shape)
        if key not in self._taken:  # else what is wrong with it is known
            self._taken[key] = self._checked(*key)
        return self._taken[key]

    def differ(self, name: str, other: str) -> bool:
        """Return whether both tensors are stored, with different numbers."""
        first, second = (self.stored.get(self._resolved(each)) for each in (name, other))
        if first is None or second is None or not {first.kind, second.kind} <= {*FLOATS}:
            return False
        return first.shape != second.shape or not np.array_equal(first.read(), second.read())

    def drop(self, pattern: str) -> None:
        """Tensors of these names (a regular expression of whole names) are needless."""
        wanted = re.compile(pattern)
        self._needless.update(name for name in self.stored if wanted.fullmatch(name))

    def finish(self) -> None:
        """Note what nobody took."""
        known = self._needless | {name for name, _ in self._taken}
        unused = sorted(self.stored.keys() - known)
        self._problems += [f"{name} is not expected" for name in unused]

    def _checked(self, name: str, shape: Shape) -> WeightReader:
        stored = self.stored.get(name)
        if stored is None:
            self._problems.append(f"{name} is missing")
        elif stored.kind not in FLOATS:
            self._problems.append(f"{name} holds {stored.kind}, which is not supported")
        elif stored.shape != shape:
            found, expected = list(stored.shape), list(shape)
            self._problems.append(f"{name} has shape {found}, expected {expected}")
        else:
            return stored.read
        return lambda: np.zeros(shape, np.float32)

    def _resolved(self, name: str) -> str:
        short = name.removeprefix(self.prefix)
        return short if name not in self.stored and short in self.stored else name

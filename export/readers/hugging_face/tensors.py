"""What a family's reader takes from the stored tensors: each is taken, or known to be needless.

A tensor that is missing, of another shape or of no type of floats is a problem, and so is one that
nobody asked for.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from models.arrays import Array
from models.storage.stored import FLOATS, Stored

Source = Callable[[], Array]  # reads a weight when it is needed


class Tensors:
    """Stored tensors by name; `prefix` is what base models are saved without."""

    def __init__(self, stored: Mapping[str, Stored], problems: list[str], prefix: str = "") -> None:
        self._stored, self._problems = stored, problems
        self._taken: set[str] = set()
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self._resolved(name) in self._stored

    def __len__(self) -> int:
        return len(self._stored)

    def without(self, prefix: str) -> "Tensors":
        """The same tensors for names that begin with `prefix`, which the file may leave away."""
        self._prefix = prefix
        return self

    def take(self, name: str, *shape: int) -> Source:
        """The tensor `name`, which must have `shape`, as fp32."""
        name = self._resolved(name)
        self._taken.add(name)
        stored = self._stored.get(name)
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

    def drop(self, pattern: str) -> None:
        """Tensors of these names (a regular expression of whole names) are needless."""
        wanted = re.compile(pattern)
        self._taken.update(name for name in self._stored if wanted.fullmatch(name))

    def finish(self) -> None:
        """Note what nobody took."""
        unused = sorted(self._stored.keys() - self._taken)
        self._problems += [f"{name} is not expected" for name in unused]

    def _resolved(self, name: str) -> str:
        short = name.removeprefix(self._prefix)
        return short if name not in self._stored and short in self._stored else name


def then(source: Source, change: Callable[[Array], Array]) -> Source:
    """The weight, changed when it is read."""
    return lambda: change(source())


def rows(source: Source, start: int, stop: int) -> Source:
    """Of a weight that is several in one."""
    return then(source, lambda weight: weight[start:stop])


def transposed(source: Source) -> Source:
    return then(source, lambda weight: weight.T)


def scaled(source: Source, factor: float) -> Source:
    return then(source, lambda weight: weight * np.float32(factor))

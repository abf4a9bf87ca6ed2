"""Reads weights by name when they are asked for, so that a large model fits."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Arrays(Mapping[str, Array]):
    """Asks the function of a name for its array every time; nothing is kept."""

    def __init__(self, readers: Mapping[str, Callable[[], Array]]) -> None:
        self._readers = dict(readers)

    def __getitem__(self, name: str) -> Array:
        return self._readers[name]()

    def __contains__(self, name: object) -> bool:  # the mixin's would read the array
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

"""Sampling parameters as columns, and random numbers that depend on their key alone.

The generator is Philox, which is counter-based (Salmon et al., 2011).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.parameters import FILTER_OPTIONS, GREEDY, SamplingParams

MIN_TEMPERATURE = 1e-4
NUM_PARAMS = 1 + len(FILTER_OPTIONS)
_NAMES = [option.name for option in FILTER_OPTIONS]


def column_of(params: SamplingParams, vocab_size: int) -> list[float]:
    """Return the parameters of a row as numbers: 1 / temperature, then the values of the filters;
    top_k is infinite if it is off.
    """
    values = {option.name: float(getattr(params, option.name)) for option in FILTER_OPTIONS}
    if not 0 < params.top_k < vocab_size:
        values["top_k"] = np.inf
    return [1 / max(params.temperature, MIN_TEMPERATURE), *values.values()]


NO_OP_VALUES = np.array(column_of(GREEDY, 1)[1:])[:, None]


@dataclass(slots=True)
class Draws:
    """The parameters and random numbers of some rows.

    params: f64 [parameters, rows], columns as made by `column_of`.
    numbers, second_numbers: f64 [rows], uniform in [0, 1).
    """

    params: Array
    numbers: Array
    second_numbers: Array

    def of(self, rows: Array | slice) -> "Draws":
        return Draws(self.params[:, rows], self.numbers[rows], self.second_numbers[rows])

    @property
    def exponents(self) -> Array:
        """Return 1 / temperature, f64 [rows]."""
        return self.params[0]

    @property
    def is_on(self) -> Array:
        """Return whether each filter is on, bool [filters, rows]."""
        return self.params[1:] != NO_OP_VALUES

    def values(self, name: str) -> Array:
        """Return a filter's values, f64 [rows]."""
        values: Array = self.params[1 + _NAMES.index(name)]
        return values

    @property
    def filters(self) -> Iterator[tuple[str, Array]]:
        """Yield the filters that are on in any row, in order: name, values f64 [rows]."""
        for index in np.flatnonzero(self.is_on.any(axis=1)):
            yield FILTER_OPTIONS[index].name, self.params[1 + index]

    @property
    def most_kept(self) -> float:
        """Return the maximum number of tokens that top_k keeps in any row."""
        return float(self.values("top_k").max())


class Uniforms:
    """Random numbers for one key after the other. Setting a generator's state takes a third of the
    time of making a generator.
    """

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._philox)
        self._start = self._philox.state

    def draw(self, seed: int, count: int) -> Array:
        """Return f64 in [0, 1), two for each position from 0 to count - 1: [count, 2]. `seed` is an
        unsigned 64-bit number.
        """
        self._start["state"]["key"][0] = seed
        self._philox.state = self._start
        return self._generator.random((count, 2))

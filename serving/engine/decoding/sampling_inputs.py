"""What sampling reads of each row: its parameters, and random numbers.

Random numbers depend on their key alone: the generator is Philox, which is counter-based (Salmon et
al., 2011).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from serving.engine.arrays import Array
from serving.requests.parameters import FILTER_OPTIONS, GREEDY, SamplingParams

# Lower temperatures draw the same tokens, as a difference of 0.01 between log-probabilities is a
# factor of e^100 at this one, but their inverses may overflow.
MIN_TEMPERATURE = 1e-4
NUM_PARAMS = 1 + len(FILTER_OPTIONS)
_NAMES = [option.name for option in FILTER_OPTIONS]


def sampling_column(params: SamplingParams, vocab_size: int) -> list[float]:
    """Return the parameters of a row as numbers: 1 / temperature, then the values of the filters;
    top_k is infinite if it is off.
    """
    values = {option.name: float(getattr(params, option.name)) for option in FILTER_OPTIONS}
    if not 0 < params.top_k < vocab_size:
        values["top_k"] = np.inf
    return [1 / max(params.temperature, MIN_TEMPERATURE), *values.values()]


NO_OP_VALUES = np.array(sampling_column(GREEDY, 1)[1:])[:, None]


@dataclass(slots=True)
class SamplingInputs:
    """The parameters and random numbers of some rows in one step.

    params: f64 [parameters, rows], columns as made by `sampling_column`.
    numbers, second_numbers: f64 [rows], uniform in [0, 1).
    """

    params: Array
    numbers: Array
    second_numbers: Array

    def select(self, rows: Array | slice) -> "SamplingInputs":
        return SamplingInputs(self.params[:, rows], self.numbers[rows], self.second_numbers[rows])

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


class RandomNumbers:
    """The random numbers of any request, from any position on. Setting the state of a generator
    takes a third of the time of making a generator.
    """

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._philox)
        self._state = self._philox.state

    def draw(self, seed: int, first: int, count: int) -> Array:
        """Return the numbers of `count` positions of a request's stream, beginning with `first`:
        f64 in [0, 1), two for each position, [count, 2].

        seed: an unsigned 64-bit number, the key of the stream.
        first: an even number, because one value of Philox's counter makes four numbers.
        """
        assert first % 2 == 0
        self._state["state"]["key"][0] = seed
        self._state["state"]["counter"][0] = first // 2
        self._philox.state = self._state
        return self._generator.random((count, 2))

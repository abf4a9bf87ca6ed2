"""Unites the rows' shortlists: every token once, in a place that it keeps while a row has it.

Places that no row uses any more keep their tokens until others need them, as the next rows' tokens
are often the same.
"""

import numpy as np

from serving.arrays import Array

WIDTH_STEP = 512


class Union:
    """Holds every token of any row.

    ids: i64 [vocabulary, rounded up], what the step graph scores; only the first `width` count, and
    what is behind the last place is scored for nobody.
    """

    def __init__(self, vocab_size: int) -> None:
        self.ids = np.zeros(_rounded(vocab_size), np.int64)
        self._num_places = 0
        self._place_of = np.zeros(vocab_size, np.int64)
        self._is_placed = np.zeros(vocab_size, bool)
        self._num_rows = np.zeros(vocab_size, np.int64)  # that have a token on their shortlists
        self._spare = np.zeros(0, np.int64)  # places that nobody used when this was last looked up

    @property
    def width(self) -> int:
        return _rounded(max(self._num_places, 1))

    @property
    def is_sparse(self) -> bool:
        """Tell whether it would be much narrower without what nobody uses."""
        num_used = int(np.count_nonzero(self._num_rows))
        return _rounded(2 * num_used + 1) < self.width

    def add(self, token_ids: Array) -> None:
        """Count one more row that has these distinct tokens."""
        self._num_rows[token_ids] += 1
        self._place(token_ids[~self._is_placed[token_ids]])

    def remove(self, token_ids: Array) -> None:
        self._num_rows[token_ids] -= 1

    def places(self, token_ids: Array) -> Array:
        """Return where tokens that some row has are among `ids`."""
        places: Array = self._place_of[token_ids]
        return places

    def pack(self) -> None:
        """Give every token that is used a new place, one behind the other."""
        self._is_placed[...] = False
        self._num_places, self._spare = 0, self._spare[:0]
        self._place(np.flatnonzero(self._num_rows))

    def _place(self, token_ids: Array) -> None:
        if not len(token_ids):
            return
        places = self._unused(len(token_ids))
        self.ids[places] = token_ids
        self._place_of[token_ids] = places
        self._is_placed[token_ids] = True

    def _unused(self, count: int) -> Array:
        """Find so many places: those that nobody uses, then new ones."""
        if len(self._spare) < count:  # looking at all places costs more than all the rest
            self._spare = np.flatnonzero(self._num_rows[self.ids[: self._num_places]] == 0)
        some, self._spare = self._spare[: 2 * count], self._spare[2 * count :]
        old = some[self._num_rows[self.ids[some]] == 0][:count]
        self._is_placed[self.ids[old]] = False
        first = self._num_places
        self._num_places += count - len(old)
        return np.concatenate([old, np.arange(first, self._num_places)])


def _rounded(count: int) -> int:
    return -(-count // WIDTH_STEP) * WIDTH_STEP

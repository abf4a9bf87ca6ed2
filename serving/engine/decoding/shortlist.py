"""Shortlists: the tokens that the step graph scores for each row.

The graph scores the union of all rows' shortlists and selects each row's own tokens from it, so
that a row's scores depend on its own shortlist alone. Requests without a shortlist use the whole
vocabulary. A token keeps its place in the union while a row has it. Unused places keep their tokens
until they are needed, because the next rows often have the same ones.
"""

from collections.abc import Sequence

import numpy as np

from serving.engine.arrays import Array
from serving.engine.decoding.scores import Scores
from serving.engine.generation import Generation
from serving.engine.rows import RowObserver

# Rows are padded to whole vectors of the graph's kernels, so that sums do not depend on padding.
WIDTH_STEP = 64


class Shortlists(RowObserver):
    """The shortlists of all rows, padded to the longest one.

    ids: the tokens of each row, i64 ascending.
    """

    def __init__(self, vocab_size: int, slots: int) -> None:
        self._every = np.arange(vocab_size)
        self._union = ShortlistUnion(vocab_size)
        self.ids: list[Array] = [self._every[:0]] * slots
        self._lengths = np.zeros(slots, np.int32)
        most = slots * _rounded(vocab_size)
        self._flat_places, self._flat_scored = np.zeros(most, np.int64), np.zeros(most, np.float32)
        self._width = WIDTH_STEP
        self._has_changed = False

    def on_add(self, row: int, generation: Generation) -> None:
        shortlist = generation.shortlist
        self._put(row, self._every if shortlist is None else shortlist)

    def on_copy(self, source: int, target: int) -> None:
        if self.ids[target] is not self.ids[source]:
            self.on_remove(target)
            self._put(target, self.ids[source])

    def on_move(self, source: int, target: int) -> None:
        for column in (self._lengths, self._places):
            column[target] = column[source]
        self.ids[target], self.ids[source] = self.ids[source], self._every[:0]
        self._lengths[source] = 0
        self._has_changed = True

    def on_remove(self, row: int) -> None:
        self._union.remove(self.ids[row])
        self.ids[row] = self._every[:0]
        self._lengths[row] = 0
        self._has_changed = True

    def fit(self, num_rows: int) -> tuple[int, ...]:
        """Fit the widths of the arrays to the rows, and return them: they grow at once, and shrink
        when it saves time. Arrays that are bound to a graph stay valid until they change.
        """
        if self._has_changed:
            self._has_changed = False
            width, is_sparse = _rounded(self._lengths[:num_rows].max()), self._union.is_sparse
            if is_sparse:
                self._union.pack()
            is_fitting = self._width >= width > self._width // 2
            if is_sparse or not is_fitting:
                self._width = self._width if is_fitting else width
                for row in range(num_rows):
                    self._write(row)
        return self._union.width, self._width

    def inputs(self, num_rows: int) -> dict[str, Array]:
        return {
            "candidates": self._union.ids[: self._union.width],
            "shortlist": self._places[:num_rows],
            "shortlist_lengths": self._lengths[:num_rows],
        }

    @property
    def scored(self) -> Array:
        """Return the array to which the step graph writes scores, f32 [slots, width]."""
        return _rows_of(self._flat_scored, len(self.ids), self._width)

    @property
    def _places(self) -> Array:
        """Return i64 [slots, width], for each row the places of its tokens in the union, then
        zeros.
        """
        return _rows_of(self._flat_places, len(self.ids), self._width)

    def _put(self, row: int, token_ids: Array) -> None:
        self._union.add(token_ids)
        self.ids[row] = token_ids
        self._lengths[row] = len(token_ids)
        self._has_changed = True
        if len(token_ids) <= self._width:
            self._write(row)

    def _write(self, row: int) -> None:
        token_ids, places = self.ids[row], self._places[row]
        places[: len(token_ids)] = self._union.places(token_ids)
        places[len(token_ids) :] = 0


class ShortScores(Scores):
    """Scores of rows with shortlists.

    shortlists: the tokens of each row that `scored` has, i64 ascending.
    """

    shortlists: Sequence[Array] = ()

    @property
    def fewest_scored(self) -> int:
        return min(map(len, self.shortlists)) - len(self._excluded)

    def _values(self, rows: Array, token_ids: Array) -> Array:
        rows, token_ids = np.broadcast_arrays(rows, token_ids)
        values = np.full(rows.shape, -np.inf, np.float32)
        for place in np.ndindex(rows.shape):
            row, token_id = int(rows[place]), token_ids[place]
            ids = self.shortlists[row]
            column = int(np.searchsorted(ids, token_id))
            if column < len(ids) and ids[column] == token_id:
                values[place] = self.scored[row, column] - self._shift[row]
        return values

    def _read(self, rows: Array, to: Array) -> None:
        to[rows] = -np.inf
        for row in rows.tolist():
            ids = self.shortlists[row]
            to[row, ids] = self.scored[row, : len(ids)] - self._shift[row]


def _rows_of(flat: Array, num_rows: int, width: int) -> Array:
    return flat[: num_rows * width].reshape(num_rows, width, copy=False)


def _rounded(count: int) -> int:
    return max(-(-int(count) // WIDTH_STEP), 1) * WIDTH_STEP


UNION_WIDTH_STEP = 512


class ShortlistUnion:
    """The tokens of all rows.

    ids: i64 [vocabulary, rounded up], the tokens that the step graph scores; only the first `width`
        are used, and the scores of unused places are ignored.
    """

    def __init__(self, vocab_size: int) -> None:
        self.ids = np.zeros(_rounded_union_width(vocab_size), np.int64)
        self._num_places = 0
        self._place_of = np.zeros(vocab_size, np.int64)
        self._is_placed = np.zeros(vocab_size, bool)
        self._num_rows = np.zeros(
            vocab_size, np.int64
        )  # number of rows that have the token on their shortlists
        self._spare = np.zeros(0, np.int64)  # unused places, when they were last searched

    @property
    def width(self) -> int:
        return _rounded_union_width(max(self._num_places, 1))

    @property
    def is_sparse(self) -> bool:
        """Return whether it would be much narrower without its unused places."""
        num_used = int(np.count_nonzero(self._num_rows))
        return _rounded_union_width(2 * num_used + 1) < self.width

    def add(self, token_ids: Array) -> None:
        """Count one more row with these distinct tokens."""
        self._num_rows[token_ids] += 1
        self._place(token_ids[~self._is_placed[token_ids]])

    def remove(self, token_ids: Array) -> None:
        self._num_rows[token_ids] -= 1

    def places(self, token_ids: Array) -> Array:
        """Return the indices in `ids` of tokens that some row has."""
        places: Array = self._place_of[token_ids]
        return places

    def pack(self) -> None:
        """Renumber the places, so that used tokens come first without gaps."""
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
        """Return `count` places: first unused ones, then new ones."""
        if len(self._spare) < count:  # searching all places takes longer than everything else here
            self._spare = np.flatnonzero(self._num_rows[self.ids[: self._num_places]] == 0)
        some, self._spare = self._spare[: 2 * count], self._spare[2 * count :]
        old = some[self._num_rows[self.ids[some]] == 0][:count]
        self._is_placed[self.ids[old]] = False
        first = self._num_places
        self._num_places += count - len(old)
        return np.concatenate([old, np.arange(first, self._num_places)])


def _rounded_union_width(count: int) -> int:
    return -(-count // UNION_WIDTH_STEP) * UNION_WIDTH_STEP

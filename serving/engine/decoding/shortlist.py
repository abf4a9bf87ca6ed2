"""Shortlists: the tokens that the step graph scores for each row.

The graph scores the union of all rows' shortlists and selects each row's own tokens from it, so
that a row's scores depend on its own shortlist alone. Requests without a shortlist use the whole
vocabulary. A token keeps its column in the union while a row has it. Unused columns keep their
tokens until they are needed, because the next rows often have the same ones.
"""

from collections.abc import Sequence

import numpy as np

from serving.engine.arrays import Array
from serving.engine.decoding.scores import Scores
from serving.engine.generation import Generation
from serving.engine.rows import RowObserver

# Rows are padded to whole vectors of the graph's kernels, so that sums do not depend on padding.
WIDTH_STEP = 64
# The union's width changes in steps, because the graph is bound once for each width.
UNION_WIDTH_STEP = 512


class Shortlists(RowObserver):
    """The shortlists of all rows, padded to the longest one.

    ids: the tokens of each row, i64 ascending.
    """

    def __init__(self, vocab_size: int, slots: int) -> None:
        self._all_ids = np.arange(vocab_size)
        self._union = ShortlistUnion(vocab_size)
        self.ids: list[Array] = [self._all_ids[:0]] * slots
        self._lengths = np.zeros(slots, np.int32)
        most = slots * _round_up(vocab_size)
        self._flat_columns, self._flat_scored = np.zeros(most, np.int64), np.zeros(most, np.float32)
        self._width = WIDTH_STEP
        self._has_changed = False

    def on_add(self, row: int, generation: Generation) -> None:
        shortlist = generation.shortlist
        self._put(row, self._all_ids if shortlist is None else shortlist)

    def on_copy(self, source: int, target: int) -> None:
        if self.ids[target] is not self.ids[source]:
            self.on_remove(target)
            self._put(target, self.ids[source])

    def on_move(self, source: int, target: int) -> None:
        for values in (self._lengths, self._columns):
            values[target] = values[source]
        self.ids[target], self.ids[source] = self.ids[source], self._all_ids[:0]
        self._lengths[source] = 0
        self._has_changed = True

    def on_remove(self, row: int) -> None:
        self._union.remove(self.ids[row])
        self.ids[row] = self._all_ids[:0]
        self._lengths[row] = 0
        self._has_changed = True

    def fit(self, num_rows: int) -> tuple[int, ...]:
        """Fit the widths of the arrays to the rows, and return them: they grow at once, and shrink
        when it saves time. Arrays that are bound to a graph stay valid until they change.
        """
        if self._has_changed:
            self._has_changed = False
            width, is_sparse = _round_up(self._lengths[:num_rows].max()), self._union.is_sparse
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
            "shortlist": self._columns[:num_rows],
            "shortlist_lengths": self._lengths[:num_rows],
        }

    @property
    def score_buffer(self) -> Array:
        """Return the array to which the step graph writes scores, f32 [slots, width]."""
        return _reshape_rows(self._flat_scored, len(self.ids), self._width)

    @property
    def _columns(self) -> Array:
        """Return i64 [slots, width], for each row the columns of its tokens in the union, then
        zeros.
        """
        return _reshape_rows(self._flat_columns, len(self.ids), self._width)

    def _put(self, row: int, token_ids: Array) -> None:
        self._union.add(token_ids)
        self.ids[row] = token_ids
        self._lengths[row] = len(token_ids)
        self._has_changed = True
        if len(token_ids) <= self._width:
            self._write(row)

    def _write(self, row: int) -> None:
        token_ids, columns = self.ids[row], self._columns[row]
        columns[: len(token_ids)] = self._union.columns(token_ids)
        columns[len(token_ids) :] = 0


class ShortlistScores(Scores):
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
        for index in np.ndindex(rows.shape):
            row, token_id = int(rows[index]), token_ids[index]
            ids = self.shortlists[row]
            column = int(np.searchsorted(ids, token_id))
            if column < len(ids) and ids[column] == token_id:
                values[index] = self.scored[row, column] - self._shift[row]
        return values

    def _copy_logp(self, rows: Array, to: Array) -> None:
        to[rows] = -np.inf
        for row in rows.tolist():
            ids = self.shortlists[row]
            to[row, ids] = self.scored[row, : len(ids)] - self._shift[row]


def _reshape_rows(flat: Array, num_rows: int, width: int) -> Array:
    return flat[: num_rows * width].reshape(num_rows, width, copy=False)


def _round_up(count: int) -> int:
    return max(-(-int(count) // WIDTH_STEP), 1) * WIDTH_STEP


class ShortlistUnion:
    """The tokens of all rows.

    ids: i64 [vocabulary, rounded up], the tokens that the step graph scores; only the first `width`
        are used, and the scores of unused columns are ignored.
    """

    def __init__(self, vocab_size: int) -> None:
        self.ids = np.zeros(_round_up_union_width(vocab_size), np.int64)
        self._num_columns = 0
        self._column_of_token = np.zeros(vocab_size, np.int64)
        self._has_column = np.zeros(vocab_size, bool)
        # Of each token: the rows that have it on their shortlists.
        self._num_rows = np.zeros(vocab_size, np.int64)
        self._free_columns = np.zeros(0, np.int64)  # unused columns, when they were last searched

    @property
    def width(self) -> int:
        return _round_up_union_width(max(self._num_columns, 1))

    @property
    def is_sparse(self) -> bool:
        """Return whether it would be much narrower without its unused columns."""
        num_used = int(np.count_nonzero(self._num_rows))
        return _round_up_union_width(2 * num_used + 1) < self.width

    def add(self, token_ids: Array) -> None:
        """Count one more row with these distinct tokens."""
        self._num_rows[token_ids] += 1
        self._assign_columns(token_ids[~self._has_column[token_ids]])

    def remove(self, token_ids: Array) -> None:
        self._num_rows[token_ids] -= 1

    def columns(self, token_ids: Array) -> Array:
        """Return the indices in `ids` of tokens that some row has."""
        columns: Array = self._column_of_token[token_ids]
        return columns

    def pack(self) -> None:
        """Renumber the columns, so that used tokens come first without gaps."""
        self._has_column[...] = False
        self._num_columns, self._free_columns = 0, self._free_columns[:0]
        self._assign_columns(np.flatnonzero(self._num_rows))

    def _assign_columns(self, token_ids: Array) -> None:
        if not len(token_ids):
            return
        columns = self._take_columns(len(token_ids))
        self.ids[columns] = token_ids
        self._column_of_token[token_ids] = columns
        self._has_column[token_ids] = True

    def _take_columns(self, count: int) -> Array:
        """Return `count` columns: first unused ones, then new ones."""
        if len(self._free_columns) < count:  # this search takes longer than everything else here
            self._free_columns = np.flatnonzero(self._num_rows[self.ids[: self._num_columns]] == 0)
        candidates = self._free_columns[: 2 * count]
        self._free_columns = self._free_columns[2 * count :]
        old = candidates[self._num_rows[self.ids[candidates]] == 0][:count]
        self._has_column[self.ids[old]] = False
        first = self._num_columns
        self._num_columns += count - len(old)
        return np.concatenate([old, np.arange(first, self._num_columns)])


def _round_up_union_width(count: int) -> int:
    return -(-count // UNION_WIDTH_STEP) * UNION_WIDTH_STEP

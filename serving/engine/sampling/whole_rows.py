"""Draws from whole rows of scores: where the window cannot tell, or a processor has changed them.

Where filters need no order of the tokens, a row is cut into blocks, so that only one of them is
searched. Else its likeliest tokens are ranked, and what the others weigh is summed up.
"""

from collections.abc import Iterator

import numpy as np

from serving.arrays import Array
from serving.engine.sampling.draws import Draws
from serving.engine.sampling.filters import FilteredWeights, apply_filters, need_ranking
from serving.engine.sampling.ranking import LEAST_LOG, FilteredRanking

BLOCK = 64
NUM_CANDIDATES = (256, 2048)  # what filters leave is rarely more
MAX_ROWS = 16  # at a time: they stay in the cache
MAX_RANKED = 16384  # tokens at a time, in all rows
ANY_WEIGHT = np.array([[0], [1e300]])  # bounds that say nothing


class WholeRows:
    """Works in memory of its own: fresh memory of this size costs more than the work itself."""

    def __init__(self, vocab_size: int, num_candidates: tuple[int, ...] = NUM_CANDIDATES) -> None:
        self._vocab_size = vocab_size
        self._counts = (*(count for count in num_candidates if count < vocab_size), vocab_size)
        self._weights = np.zeros((MAX_ROWS, -(-vocab_size // BLOCK) * BLOCK), np.float32)
        self._parts = np.empty((MAX_ROWS, vocab_size), np.float32)

    def draw(
        self, scores: Array, rows: Array, top_ids: Array, proposals: Array, draws: Draws
    ) -> Array:
        """Draw token ids, i64 [rows].

        scores: f32 [all rows, vocabulary], log-probabilities up to a constant, not all -inf
        rows: i64 [rows], which of them; all else is theirs
        top_ids: i64 [rows, window], tokens to begin with; the window may be empty
        proposals: f64 [rows], of a window that could not tell; infinite where there was none
        """
        token_ids = np.empty(len(rows), np.int64)
        needs_ranking = need_ranking(draws)
        for some in _parts_of(~needs_ranking, MAX_ROWS):
            token_ids[some] = self._draw_by_blocks(
                scores, rows[some], top_ids[some], proposals[some], draws.of(some)
            )
        left = needs_ranking
        for count in self._counts if left.any() else ():
            for some in _parts_of(left, min(MAX_ROWS, max(MAX_RANKED // count, 1))):
                token_ids[some] = self._draw_among(
                    count, scores, rows[some], proposals[some], draws.of(some)
                )
            left = left & (token_ids < 0)
        return token_ids

    def _draw_by_blocks(
        self, scores: Array, rows: Array, top_ids: Array, proposals: Array, draws: Draws
    ) -> Array:
        """Search the first tokens one by one, then the rest by blocks."""
        num_rows, window = top_ids.shape
        row, weights = np.arange(num_rows), self._weights[:num_rows]
        _weigh(scores, rows, draws, out=weights[:, : self._vocab_size])
        first = weights[row[:, None], top_ids]
        weights[row[:, None], top_ids] = 0
        blocks = weights.reshape(num_rows, -1, BLOCK)
        groups = np.concatenate([first, np.einsum("rbi->rb", blocks)], axis=1, dtype=np.float64)
        sums = groups.cumsum(axis=1)
        targets = draws.second_numbers * sums[:, -1]
        np.copyto(targets, proposals, where=proposals < sums[:, -1])
        group = (sums > targets[:, None]).argmax(axis=1)
        targets -= sums[row, group] - groups[row, group]
        block = np.maximum(group - window, 0)
        token_ids = block * BLOCK + _find_within(blocks[row, block], targets)
        is_first = np.flatnonzero(group < window)
        token_ids[is_first] = top_ids[is_first, group[is_first]]
        return token_ids

    def _draw_among(
        self, num_candidates: int, scores: Array, rows: Array, proposals: Array, draws: Draws
    ) -> Array:
        """Search the likeliest tokens, best first; -1 where so many of them cannot tell."""
        parts = np.take(scores, rows, axis=0, out=self._parts[: len(rows)], mode="clip")
        num_others = parts.shape[1] - num_candidates
        if num_others:
            parts.partition(num_others, axis=1)
        ranked, others = np.sort(parts[:, num_others:], axis=1)[:, ::-1], parts[:, :num_others]
        ranks = _draw_ranks(ranked, others, proposals, draws)
        values = np.take(scores, rows, axis=0, out=self._parts[: len(rows)], mode="clip")
        return np.where(ranks < 0, -1, _ids_of(values, ranked, ranks))


def _parts_of(is_wanted: Array, size: int) -> Iterator[Array | slice]:
    """Cut the wanted rows into parts, so many rows each."""
    wanted = np.flatnonzero(is_wanted)
    for start in range(0, len(wanted), size):
        stop = min(start + size, len(wanted))
        yield slice(start, stop) if len(wanted) == len(is_wanted) else wanted[start:stop]


def _weigh(scores: Array, rows: Array, draws: Draws, out: Array) -> None:
    """Weigh tokens, the likeliest at 1, and at 0 those that are too light for a filter."""
    weights = np.take(scores, rows, axis=0, out=out, mode="clip")
    weights -= weights.max(axis=1)[:, None]
    weights *= draws.exponents.astype(np.float32)[:, None]
    np.exp(weights, out=weights)
    apply_filters(FilteredWeights(weights), draws)


def _find_within(weights: Array, targets: Array) -> Array:
    """Find where the running sums pass their targets, of tokens that weigh something."""
    sums = weights.cumsum(axis=1, dtype=np.float64)
    targets = np.clip(targets, 0, sums[:, -1] * (1 - 1e-12))
    index: Array = (sums > targets[:, None]).argmax(axis=1)
    return index


def _draw_ranks(ranked: Array, others: Array, proposals: Array, draws: Draws) -> Array:
    """Draw ranks, i64 [rows], -1 where the candidates cannot tell.

    ranked: f32 [rows, candidates], best first
    others: f32 [rows, others], in any order; overwritten
    """
    logs = np.subtract(ranked, ranked[:, :1], dtype=np.float64)
    logs *= draws.exponents[:, None]
    np.maximum(logs, LEAST_LOG, out=logs)
    others -= ranked[:, :1]
    others *= draws.exponents.astype(np.float32)[:, None]
    is_of_interest = draws.most_kept > ranked.shape[1] or not others.size
    outside = np.einsum("rv->r", np.exp(others)) if is_of_interest else ANY_WEIGHT
    ranking = FilteredRanking(logs, outside, others.shape[1], others)
    proposed, is_ranked = ranking.find(proposals), proposals < ranking.ranked
    apply_filters(ranking, draws)
    is_certain = ranking.is_certain
    is_drawn = is_certain & is_ranked & ranking.surely_has(proposed)
    (least, most), seconds = ranking.total, draws.second_numbers * ranking.total[0]
    is_missed = is_certain & ~is_drawn & (least == most)
    is_missed &= is_ranked | (proposals >= most) | (most <= ranking.ranked)
    is_missed &= seconds < ranking.ranked
    ranks = np.where(is_drawn, proposed, ranking.find(seconds))
    return np.where(is_drawn | is_missed, ranks, -1)


def _ids_of(values: Array, ranked: Array, ranks: Array) -> Array:
    """Find the ids of these ranks; equals rank by id, as in the step graph's window."""
    value = ranked[np.arange(len(ranks)), ranks][:, None]
    ids: Array = (values == value).argmax(axis=1)
    num_before = ((ranked == value) & (np.arange(ranked.shape[1]) < ranks[:, None])).sum(axis=1)
    for row in np.flatnonzero(num_before):
        ids[row] = np.flatnonzero(values[row] == value[row])[num_before[row]]
    return ids

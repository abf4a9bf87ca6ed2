"""Draws from whole rows of scores: where the window cannot tell, or a processor has changed them.

Without filters a row is cut into blocks, so that only one of them is searched. With filters its
likeliest tokens are ranked, and what the others weigh is summed up.
"""

import numpy as np

from serving.engine.draws import Draws, Kept
from serving.engine.draws_typical import cut_typical
from serving.engine.memory import Array

LEAST_LOG = -1e4  # stands in for log 0; its weight is 0 all the same
BLOCK = 64
FIRST_CANDIDATES = 256  # what filters leave is rarely more


def draw_from_rows(values: Array, top_ids: Array, proposals: Array, draws: Draws) -> Array:
    """Token ids, i64 [rows].

    values: f32 [rows, vocabulary], log-probabilities up to a constant, not all -inf
    top_ids: i64 [rows, window], tokens to begin with; the window may be empty
    proposals: f64 [rows], of a window that could not tell; infinite where there was none
    """
    token_ids = np.empty(len(values), np.int64)
    is_filtered = draws.is_filtered
    plain, filtered = np.flatnonzero(~is_filtered), np.flatnonzero(is_filtered)
    if len(plain):
        token_ids[plain] = draw_unfiltered(
            values[plain], top_ids[plain], proposals[plain], draws.of(plain)
        )
    if len(filtered):
        token_ids[filtered] = draw_filtered(
            values[filtered], proposals[filtered], draws.of(filtered)
        )
    return token_ids


def draw_unfiltered(values: Array, top_ids: Array, proposals: Array, draws: Draws) -> Array:
    """The first tokens one by one, then the rest by blocks."""
    num_rows, vocab_size = values.shape
    num_blocks = -(-vocab_size // BLOCK)
    row, window = np.arange(num_rows), top_ids.shape[1]
    weights = np.zeros((num_rows, num_blocks * BLOCK), np.float32)
    inner = np.subtract(values, values.max(axis=1)[:, None], out=weights[:, :vocab_size])
    inner *= draws.exponents.astype(np.float32)[:, None]
    np.exp(inner, out=inner)
    first = weights[row[:, None], top_ids]
    weights[row[:, None], top_ids] = 0
    weights = weights.reshape(num_rows, num_blocks, BLOCK)
    groups = np.concatenate([first, np.einsum("rbi->rb", weights)], axis=1, dtype=np.float64)
    totals = groups.sum(axis=1)
    targets = np.where(proposals < totals, proposals, draws.second_numbers * totals)
    group, targets = _invert(groups, targets)
    block = np.maximum(group - window, 0)
    index, _ = _invert(weights[row, block].astype(np.float64), targets)
    token_ids = block * BLOCK + index
    is_first = np.flatnonzero(group < window)
    token_ids[is_first] = top_ids[is_first, group[is_first]]
    return token_ids


def _invert(weights: Array, targets: Array) -> tuple[Array, Array]:
    """Where the running sum of each row passes its target, and the target's distance into it."""
    cumulative = weights.cumsum(axis=1)
    is_below = (cumulative <= targets[:, None]) & (cumulative < cumulative[:, -1:])
    index = is_below.sum(axis=1)
    row = np.arange(len(weights))
    return index, np.maximum(targets - (cumulative[row, index] - weights[row, index]), 0)


def draw_filtered(
    values: Array, proposals: Array, draws: Draws, num_candidates: int = FIRST_CANDIDATES
) -> Array:
    """Likeliest first; where the candidates are too few, from all."""
    ranked, others = _split(values, num_candidates)
    ranks = _draw_ranks(ranked, others, proposals, draws)
    token_ids = _ids_of(values, ranked, ranks)
    for each in np.flatnonzero(ranks < 0):  # one by one: a whole row at float64 fills a cache
        one = slice(each, each + 1)
        token_ids[one] = draw_filtered(values[one], proposals[one], draws.of(one), values.shape[1])
    return token_ids


def _split(values: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest of each row, best first, and the others in any order."""
    num_others = max(values.shape[1] - count, 0)
    if num_others:
        values = np.partition(values, num_others, axis=1)
    return np.sort(values[:, num_others:], axis=1)[:, ::-1], values[:, :num_others]


def _draw_ranks(ranked: Array, others: Array, proposals: Array, draws: Draws) -> Array:
    """Ranks among the candidates, -1 where they cannot tell."""
    largest = ranked[:, :1]
    logs = np.subtract(ranked, largest, dtype=np.float64)
    logs *= draws.exponents[:, None]
    np.maximum(logs, LEAST_LOG, out=logs)
    other_logs = others - largest
    other_logs *= draws.exponents.astype(np.float32)[:, None]
    np.maximum(other_logs, LEAST_LOG, out=other_logs)
    weights = np.exp(other_logs)
    outside = np.einsum("rv->r", weights)
    kept = Kept(logs, outside)
    proposed = kept.find(proposals)
    kept.cut_prefix(draws)
    is_certain = np.ones(len(logs), bool)
    if draws.typical_p.min() < 1:
        outside_moment = np.einsum("rv,rv->r", weights, other_logs)
        is_certain = cut_typical(kept, outside_moment, draws.typical_p)
    if draws.epsilon_cutoff.max() > 0:
        kept.cut_epsilon(draws.epsilon_cutoff)
    return _decide(kept, proposed, proposals, draws.second_numbers, is_certain)


def _decide(
    kept: Kept, proposed: Array, proposals: Array, second_numbers: Array, is_certain: Array
) -> Array:
    """The proposed ranks if they are kept, else others; -1 where there is no telling."""
    (least, most), inside = kept.total, kept.sums[0, :, -2]
    is_drawn = is_certain & kept.surely_has(proposed)
    is_missed = is_certain & ~is_drawn & (least == most)
    is_missed &= (proposed < kept.num_ranks) | (proposals >= most) | (most <= inside)
    ranks = np.where(is_missed, kept.find(second_numbers * most), proposed)
    return np.where((is_drawn | is_missed) & (ranks < kept.num_ranks), ranks, -1)


def _ids_of(values: Array, ranked: Array, ranks: Array) -> Array:
    """Ids of the tokens with these ranks; equals rank by id, as in the step graph's window."""
    value = ranked[np.arange(len(ranks)), ranks][:, None]
    ids: Array = (values == value).argmax(axis=1)
    num_before = ((ranked == value) & (np.arange(ranked.shape[1]) < ranks[:, None])).sum(axis=1)
    for row in np.flatnonzero(num_before):
        ids[row] = np.flatnonzero(values[row] == value[row])[num_before[row]]
    return ids

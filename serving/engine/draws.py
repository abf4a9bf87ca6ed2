"""Draws tokens, exactly over the whole vocabulary, for many rows at once.

The step graph hands over a window of each row's likeliest tokens, sorted. A token is drawn by
inverting the cumulative distribution in that order, so the window alone decides most draws: all it
lacks is how much weight the tokens outside it have together, and that can be bounded from both
sides. Where both bounds lead to the same token the draw is decided; other rows are drawn from all
of the row's log-probabilities, in an order that begins with the window's.

Everything is computed row by row, from that row's scores and its own random number, by operations
whose result for a row does not depend on how many rows there are: no matrix products.
"""

from dataclasses import dataclass

import numpy as np

from serving.engine.memory import Array
from serving.engine.search import Scores

ROUNDING = 1e-5  # more than float32 log-probabilities of one row can miss a sum of 1 by
LEAST_LOGP = -1e4  # stands in for log 0, to keep sums free of infinities
BLOCK = 64
FIRST_CANDIDATES = 512  # a nucleus is rarely larger


@dataclass(slots=True)
class Draws:
    """What to draw, one entry per row.

    exponents: f64, 1 / temperature; top_k: i64, at most the vocabulary; top_p: f64; numbers: f64,
    uniform in [0, 1).
    """

    exponents: Array
    top_k: Array
    top_p: Array
    numbers: Array

    def of(self, rows: Array | slice) -> "Draws":
        return Draws(self.exponents[rows], self.top_k[rows], self.top_p[rows], self.numbers[rows])


def draw_tokens(scores: Scores, rows: Array, draws: Draws) -> Array:
    """Token ids for these rows of the scores: i64 [len(rows)]."""
    vocab_size = scores.logp.shape[1]
    indices = draw_from_window(scores.top_logp[rows], vocab_size, draws)
    token_ids = scores.top_ids[rows, indices]
    is_open = indices < 0
    if is_open.any():
        is_filtered = (draws.top_k < vocab_size) | (draws.top_p < 1)
        plain, filtered = (
            np.flatnonzero(is_open & ~is_filtered),
            np.flatnonzero(is_open & is_filtered),
        )
        if len(plain):
            logp, top_ids = scores.logp[rows[plain]], scores.top_ids[rows[plain]]
            token_ids[plain] = draw_unfiltered(logp, top_ids, draws.of(plain))
        if len(filtered):
            token_ids[filtered] = draw_filtered(scores.logp[rows[filtered]], draws.of(filtered))
    return token_ids


def draw_from_window(top_logp: Array, vocab_size: int, draws: Draws) -> Array:
    """Indices into the window [rows, window]; -1 where the window cannot tell."""
    window = top_logp.shape[1]
    top_logp = np.maximum(top_logp.astype(np.float64), LEAST_LOGP)
    weights = np.exp(draws.exponents[:, None] * (top_logp - top_logp[:, :1]))
    if draws.top_k.min() < window:
        weights[np.arange(window) >= draws.top_k[:, None]] = 0
    cumulative = weights.cumsum(axis=1)
    low, high = _weight_outside(top_logp, vocab_size, draws)
    low += cumulative[:, -1]
    high += cumulative[:, -1]
    decided = np.ones(len(low), bool)
    if draws.top_p.min() < 1:
        decided = _cut_nucleus(cumulative, draws.top_p, low, high)
    first = (cumulative <= (draws.numbers * low)[:, None]).sum(axis=1)
    final = (cumulative <= (draws.numbers * high)[:, None]).sum(axis=1)
    decided &= (first == final) & (first < np.minimum(draws.top_k, window))
    return np.where(decided, first, -1)


def _weight_outside(top_logp: Array, vocab_size: int, draws: Draws) -> tuple[Array, Array]:
    """Bounds of the weight, relative to the likeliest token's, of all tokens outside the window.

    With n probabilities p_i <= p_min (the window's last) that sum to `rest` and the exponent
    a = 1 / temperature, the sum of p_i^a lies between rest * p_min^(a - 1) and n^(1 - a) * rest^a
    (power mean inequality; which of the two is the upper bound depends on a), and is at most
    n * p_min^a.
    """
    num_outside = vocab_size - top_logp.shape[1]
    if not num_outside:
        return np.zeros(len(top_logp)), np.zeros(len(top_logp))
    exponents, log_least = draws.exponents, top_logp[:, -1]
    rest = 1 - np.exp(top_logp).sum(axis=1)
    shift = exponents * top_logp[:, 0]

    def bounds(rest: Array) -> tuple[Array, Array]:
        log_rest = np.log(rest)
        by_least = log_rest + (exponents - 1) * log_least
        by_mean = exponents * log_rest + (1 - exponents) * np.log(num_outside)
        return by_least - shift, by_mean - shift

    low = np.exp(np.minimum(*bounds(np.maximum(rest - ROUNDING, 1e-300))))
    high = np.exp(np.maximum(*bounds(np.maximum(rest, 0) + ROUNDING)))
    num_allowed = np.maximum(draws.top_k - top_logp.shape[1], 0)
    most = num_allowed * np.exp(exponents * log_least - shift)
    low[num_allowed < num_outside] = 0  # only some of the tokens outside count
    return np.minimum(low, most), np.minimum(high, most)


def _cut_nucleus(cumulative: Array, top_p: Array, low: Array, high: Array) -> Array:
    """Apply top_p: lower the totals, in place, to the nucleus's. Returns which are certain."""
    window = cumulative.shape[1]
    first = (cumulative < (top_p * low)[:, None]).sum(axis=1)
    final = (cumulative < (top_p * high)[:, None]).sum(axis=1)
    is_cut = top_p < 1
    is_certain = (first == final) & (first < window)
    nucleus = cumulative[np.arange(len(top_p)), np.minimum(first, window - 1)]
    low[is_cut] = high[is_cut] = nucleus[is_cut]
    return is_certain | ~is_cut


def draw_unfiltered(logp: Array, top_ids: Array, draws: Draws) -> Array:
    """Token ids from whole rows [rows, vocabulary]: the window first, then the rest by blocks."""
    num_rows, vocab_size = logp.shape
    num_blocks = -(-vocab_size // BLOCK)
    row = np.arange(num_rows)
    weights = np.zeros((num_rows, num_blocks * BLOCK), np.float32)
    inner = weights[:, :vocab_size]
    np.subtract(logp, logp[row, top_ids[:, 0]][:, None], out=inner)
    inner *= draws.exponents.astype(np.float32)[:, None]
    np.exp(inner, out=inner)
    window = weights[row[:, None], top_ids]
    weights[row[:, None], top_ids] = 0
    weights = weights.reshape(num_rows, num_blocks, BLOCK)
    groups = np.concatenate([window, np.einsum("rbi->rb", weights)], axis=1, dtype=np.float64)
    group, target = _invert(groups, draws.numbers * groups.sum(axis=1))
    block = np.maximum(group - window.shape[1], 0)
    index, _ = _invert(weights[row, block].astype(np.float64), target)
    in_window = top_ids[row, np.minimum(group, window.shape[1] - 1)]
    return np.where(group < window.shape[1], in_window, block * BLOCK + index)


def _invert(weights: Array, targets: Array) -> tuple[Array, Array]:
    """Where the running sum of each row passes its target, and the target's distance into it."""
    cumulative = weights.cumsum(axis=1)
    is_below = (cumulative <= targets[:, None]) & (cumulative < cumulative[:, -1:])
    index = is_below.sum(axis=1)
    row = np.arange(len(weights))
    return index, targets - (cumulative[row, index] - weights[row, index])


def draw_filtered(logp: Array, draws: Draws, num_candidates: int = FIRST_CANDIDATES) -> Array:
    """Token ids from whole rows, likeliest first; where the candidates are too few, from all."""
    vocab_size = logp.shape[1]
    ranked = _ranked(logp, num_candidates)
    weights = np.exp((ranked - ranked[:, :1]) * draws.exponents[:, None])
    weights[np.arange(ranked.shape[1]) >= draws.top_k[:, None]] = 0
    cumulative = weights.cumsum(axis=1)
    total = cumulative[:, -1].copy()
    is_cut_off = draws.top_k > ranked.shape[1]
    if is_cut_off.any():
        cut_off = np.flatnonzero(is_cut_off)
        total[cut_off] = _weight_of_all(logp[cut_off], ranked[cut_off], draws.of(cut_off))
    limits = draws.top_p * total
    last = np.minimum((cumulative < limits[:, None]).sum(axis=1), ranked.shape[1] - 1)
    row = np.arange(len(logp))
    rank = (cumulative <= (draws.numbers * cumulative[row, last])[:, None]).sum(axis=1)
    token_ids = _ids_of(logp, ranked, np.minimum(rank, last))
    is_open = is_cut_off & ((draws.top_k < vocab_size) | (cumulative[:, -1] < limits))
    for each in np.flatnonzero(is_open):  # one by one: a whole row at float64 fills a cache
        one = slice(each, each + 1)
        token_ids[one] = draw_filtered(logp[one], draws.of(one), vocab_size)
    return token_ids


def _ranked(logp: Array, count: int) -> Array:
    """The `count` largest of each row, best first."""
    vocab_size = logp.shape[1]
    if count < vocab_size:
        logp = np.partition(logp, vocab_size - count, axis=1)[:, vocab_size - count :]
    return np.sort(logp, axis=1)[:, ::-1].astype(np.float64)


def _weight_of_all(logp: Array, ranked: Array, draws: Draws) -> Array:
    shifted = logp - ranked[:, :1].astype(np.float32)
    shifted *= draws.exponents.astype(np.float32)[:, None]
    total: Array = np.exp(shifted, out=shifted).sum(axis=1, dtype=np.float64)
    return total


def _ids_of(logp: Array, ranked: Array, rank: Array) -> Array:
    """Ids of the tokens with these ranks; equals rank by id, as in the step graph's window."""
    values = ranked[np.arange(len(rank)), rank][:, None]
    ids = (logp == values).argmax(axis=1)
    num_before = ((ranked == values) & (np.arange(ranked.shape[1]) < rank[:, None])).sum(axis=1)
    for row in np.flatnonzero(num_before):
        ids[row] = np.flatnonzero(logp[row] == values[row])[num_before[row]]
    return ids

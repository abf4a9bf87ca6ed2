"""Sampling, exact over the whole vocabulary, for all rows of a batch at once.

The step graph hands over a window of each row's likeliest tokens, sorted. A token is drawn by
inverting the cumulative distribution in that order, so the window alone decides nearly every draw:
all it lacks is how much weight the tokens outside it have together, and that can be bounded from
both sides. Where both bounds lead to the same token the draw is decided; the other rows are drawn
from the whole row of log-probabilities.

Everything is computed row by row, from that row's scores and its own random number: what shares the
batch cannot change it.
"""

import numpy as np

from serving.engine.generation import Generation
from serving.engine.memory import Array
from serving.engine.randomness import uniforms
from serving.engine.search import Choices, Scores

ROUNDING = 1e-5  # more than float32 log-probabilities of one row can miss a sum of 1 by
MIN_TEMPERATURE = 1e-4
LEAST_LOGP = -1e4  # stands in for log 0, to keep sums free of infinities


class Sampling:
    """temperature, top_k and top_p (in this order), or greedy."""

    def __init__(self, slots: int, vocab_size: int, max_new_tokens: int) -> None:
        self._vocab_size = vocab_size
        self._is_sampled = np.zeros(slots, bool)
        self._num_drawn = np.zeros(slots, np.int64)
        self._exponents = np.ones(slots)  # 1 / temperature
        self._top_k = np.zeros(slots, np.int64)
        self._top_p = np.ones(slots)
        self._uniforms = np.zeros((slots, max_new_tokens))
        self._columns: tuple[Array, ...] = (
            self._is_sampled,
            self._num_drawn,
            self._exponents,
            self._top_k,
            self._top_p,
            self._uniforms,
        )

    def admit(self, row: int, generation: Generation) -> None:
        params = generation.request.sampling
        self._is_sampled[row] = not params.is_greedy
        if params.is_greedy:
            return
        self._num_drawn[row] = 0
        self._exponents[row] = 1 / max(params.temperature, MIN_TEMPERATURE)
        self._top_k[row] = min(params.top_k or self._vocab_size, self._vocab_size)
        self._top_p[row] = params.top_p
        count = generation.max_new_tokens
        self._uniforms[row, :count] = uniforms(generation.seed, 0, count)

    def move(self, source: int, target: int) -> None:
        for column in self._columns:
            column[target] = column[source]

    def choose(self, scores: Scores) -> Choices:
        token_ids = scores.top_ids[:, 0].copy()
        logprobs = scores.top_logp[:, 0].copy()
        rows = np.flatnonzero(self._is_sampled[: len(token_ids)])
        if len(rows):
            token_ids[rows] = self._draw(rows, scores)
            logprobs[rows] = scores.logp[rows, token_ids[rows]]
        return Choices(token_ids, logprobs)

    def _draw(self, rows: Array, scores: Scores) -> Array:
        """One token id for each of these rows."""
        draw = self._uniforms[rows, self._num_drawn[rows]]
        self._num_drawn[rows] += 1
        exponents, top_k, top_p = self._exponents[rows], self._top_k[rows], self._top_p[rows]
        indices = draw_from_window(
            scores.top_logp[rows], self._vocab_size, exponents, top_k, top_p, draw
        )
        token_ids = scores.top_ids[rows, indices]
        for i in np.flatnonzero(indices < 0):
            row = rows[i]
            token_ids[i] = draw_from_all(
                scores.logp[row], scores.top_ids[row], exponents[i], top_k[i], top_p[i], draw[i]
            )
        return token_ids


def draw_from_window(
    top_logp: Array, vocab_size: int, exponents: Array, top_k: Array, top_p: Array, draw: Array
) -> Array:
    """Index into the window [rows, window] of the token drawn for each row; -1 where the window
    cannot tell.
    """
    window = top_logp.shape[1]
    top_logp = np.maximum(top_logp.astype(np.float64), LEAST_LOGP)
    exponents = exponents[:, None]
    weights = np.exp(exponents * (top_logp - top_logp[:, :1]))
    if top_k.min() < window:
        weights[np.arange(window) >= top_k[:, None]] = 0
    cumulative = weights.cumsum(axis=1)
    low, high = _weight_outside(
        top_logp, np.minimum(top_k, vocab_size), vocab_size, exponents[:, 0]
    )
    low += cumulative[:, -1]
    high += cumulative[:, -1]
    decided = np.ones(len(draw), bool)
    if top_p.min() < 1:
        decided = _cut_nucleus(cumulative, top_p, low, high)
    first = (cumulative <= (draw * low)[:, None]).sum(axis=1)
    final = (cumulative <= (draw * high)[:, None]).sum(axis=1)
    decided &= (first == final) & (first < np.minimum(top_k, window))
    return np.where(decided, first, -1)


def _weight_outside(
    top_logp: Array, top_k: Array, vocab_size: int, exponents: Array
) -> tuple[Array, Array]:
    """Bounds of the weight, relative to the likeliest token's, of all tokens that lie outside the
    window.

    With probabilities p_i <= p_min (the window's last) that sum to `rest` and the exponent a = 1 /
    temperature, the sum of p_i^a lies between rest * p_min^(a - 1) and n^(1 - a) * rest^a (power
    mean inequality; which of the two is the upper bound depends on a), and is at most n * p_min^a.
    """
    window = top_logp.shape[1]
    num_outside = np.maximum(top_k - window, 0)
    rest = np.exp(top_logp).sum(axis=1)
    np.subtract(1, rest, out=rest)
    log_least, shift = top_logp[:, -1], exponents * top_logp[:, 0]
    log_count = np.log(np.maximum(vocab_size - window, 1))

    def bounds(rest: Array) -> tuple[Array, Array]:
        log_rest = np.log(rest)
        steep = log_rest + (exponents - 1) * log_least - shift
        flat = (1 - exponents) * log_count + exponents * log_rest - shift
        return steep, flat

    low = np.exp(np.minimum(*bounds(np.maximum(rest - ROUNDING, 1e-300))))
    high = np.exp(np.maximum(*bounds(np.maximum(rest, 0) + ROUNDING)))
    most = num_outside * np.exp(exponents * log_least - shift)
    low[top_k < vocab_size] = 0  # only some of the tokens outside count
    return np.minimum(low, most), np.minimum(high, most)


def _cut_nucleus(cumulative: Array, top_p: Array, low: Array, high: Array) -> Array:
    """Apply top_p in place: bring the totals down to the nucleus's. Returns which rows' nuclei are
    certain.
    """
    window = cumulative.shape[1]
    first = (cumulative < (top_p * low)[:, None]).sum(axis=1)
    final = (cumulative < (top_p * high)[:, None]).sum(axis=1)
    is_cut = top_p < 1
    is_certain = (first == final) & (first < window)
    nucleus = cumulative[np.arange(len(top_p)), np.minimum(first, window - 1)]
    low[is_cut] = high[is_cut] = nucleus[is_cut]
    return is_certain | ~is_cut


def draw_from_all(
    logp: Array, top_ids: Array, exponent: float, top_k: int, top_p: float, draw: float
) -> int:
    """Token id drawn from one row's whole vocabulary."""
    weights = np.exp(exponent * (logp - logp[top_ids[0]]).astype(np.float64))
    if top_k >= len(logp) and top_p >= 1:
        order = _window_first(len(logp), top_ids)
    else:
        order = np.argsort(-weights)[:top_k]
    cumulative = weights[order].cumsum()
    total = cumulative[-1]
    if top_p < 1:
        nucleus = min(int(np.searchsorted(cumulative, top_p * total)), len(order) - 1)
        total = cumulative[nucleus]
    index = int(np.searchsorted(cumulative, draw * total, side="right"))
    return int(order[min(index, len(order) - 1)])


def _window_first(vocab_size: int, top_ids: Array) -> Array:
    """Any order gives the same distribution; this one agrees with the window's."""
    is_outside = np.ones(vocab_size, bool)
    is_outside[top_ids] = False
    return np.concatenate([top_ids, np.flatnonzero(is_outside)])

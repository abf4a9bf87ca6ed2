"""Draws from the step graph's window: sorted already, and enough for most draws.

What the tokens outside weigh together is not known, only what their probabilities sum to and that
none is above the window's last; that bounds it from both sides.
"""

import numpy as np

from serving.arrays import Array
from serving.engine.sampling.draws import Draws
from serving.engine.sampling.filters import apply_filters
from serving.engine.sampling.ranking import LEAST_LOG, FilteredRanking

ROUNDING = 1e-5  # more than float32 log-probabilities of one row can miss a sum of 1 by
ROUNDINGS = np.array([[-ROUNDING], [ROUNDING]])
LEAST_RESTS = np.array([[1e-300], [ROUNDING]])


def draw_from_window(
    top_logp: Array, vocab_size: int, draws: Draws, excluded: Array | float = 0.0
) -> tuple[Array, Array]:
    """Draw ranks, i64 [rows], -1 where the window cannot tell; and tell the proposals, f64 [rows]:
    where in the cumulative weights they fall, the likeliest token's being 1.

    top_logp: f32 [rows, window], best first.
    excluded: f64 [rows], the probability of those outside that must not be drawn.
    """
    logp = np.maximum(top_logp, LEAST_LOG, dtype=np.float64)
    logs = logp - logp[:, :1]
    logs *= draws.exponents[:, None]
    num_outside = vocab_size - logp.shape[1]
    is_enough = draws.most_kept <= logp.shape[1]  # nothing outside is kept
    outside = 0.0 if is_enough else _weight_outside(logp, num_outside, draws.exponents, excluded)
    ranking = FilteredRanking(logs, outside, num_outside)
    apply_filters(ranking, draws)
    proposals = draws.numbers * ranking.total[1]
    ranks = ranking.find(proposals)
    is_drawn = proposals < np.minimum(ranking.total[0], ranking.ranked)
    for condition in ranking.conditions:
        is_drawn &= condition(ranks)
    return np.where(is_drawn, ranks, -1), proposals


def _weight_outside(
    logp: Array, num_outside: int, exponents: Array, excluded: Array | float
) -> Array:
    """Bound what the tokens outside weigh together, f64 [2, rows].

    With n probabilities p_i <= p_min (the window's last) that sum to `rest` and the exponent
    a = 1 / temperature, the sum of p_i^a lies between rest * p_min^(a - 1) and n^(1 - a) * rest^a
    (power mean inequality; which of the two is the upper bound depends on a), and is at most
    n * p_min^a.
    """
    if not num_outside:
        return np.zeros((2, len(logp)))
    rest = 1 - np.exp(logp).sum(axis=1) - excluded
    log_rest = np.log(np.maximum(rest + ROUNDINGS, LEAST_RESTS))
    log_least, log_num = logp[:, -1], np.log(num_outside)
    by_least = log_rest + (exponents - 1) * log_least
    by_mean = exponents * log_rest + (1 - exponents) * log_num
    log_outside = np.minimum(by_least, by_mean)
    np.maximum(by_least[1], by_mean[1], out=log_outside[1])
    np.minimum(log_outside, log_num + exponents * log_least, out=log_outside)
    log_outside -= exponents * logp[:, 0]
    return np.exp(log_outside)

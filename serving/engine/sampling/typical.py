"""Locally typical sampling (Meister et al. 2023): tokens whose surprisal is closest to the entropy.

A token's surprisal differs from the entropy by as much as the logarithm of its weight differs from
the mean logarithm.
"""

import numpy as np

from serving.arrays import Array
from serving.engine.sampling.filters import Draws, Kept

LEAST_LOG = -1e4  # stands in for log 0; its weight is 0 all the same


def cut_typical(kept: Kept, other_logs: Array, typical_p: Array) -> Array:
    """Apply `typical_p`. Returns where the ranking can tell, bool [rows].

    other_logs: f32 [rows, others], logarithms of weights, of all tokens outside the ranking
    """
    is_certain = np.ones(len(typical_p), bool)
    rows = np.flatnonzero(typical_p < 1)
    logs, weights, sums = kept.logs[rows], kept.weights[rows], kept.sums[rows]
    least, most = kept.total[:, rows]
    is_inside, is_left = most <= sums[:, -1], sums <= most[:, None]
    moment = np.where(is_left, weights * logs, 0).sum(axis=1)
    means = (moment + np.where(is_inside, 0, _moment(other_logs[rows]))) / most
    distances = np.where(is_left, np.abs(logs - means[:, None]), np.inf)
    farthest = _farthest(distances, weights, typical_p[rows] * most)
    is_near = farthest < means - logs[:, -1]  # nearer than all tokens outside
    is_certain[rows] = (least == most) & (is_inside | is_near)
    kept.weights[rows] = np.where(distances <= farthest[:, None], weights, 0)
    kept.sums[rows] = kept.weights[rows].cumsum(axis=1)
    kept.total[:, rows] = kept.sums[rows, -1]
    return is_certain


def _moment(logs: Array) -> Array:
    logs = np.maximum(logs, LEAST_LOG)
    moment: Array = np.einsum("rv,rv->r", np.exp(logs), logs)
    return moment


def _farthest(distances: Array, weights: Array, limits: Array) -> Array:
    """How far the closest tokens reach that weigh at least so much together."""
    order = distances.argsort(axis=1)
    reached = np.take_along_axis(weights, order, 1).cumsum(axis=1)
    num_closer = np.minimum((reached < limits[:, None]).sum(axis=1), weights.shape[1] - 1)
    row = np.arange(len(weights))
    farthest: Array = distances[row, order[row, num_closer]]
    return farthest


def stays_typical(kept: Kept, ranks: Array, num_outside: int, draws: Draws) -> Array:
    """Whether these tokens surely pass `typical_p` and `epsilon_cutoff`, bool [rows].

    A token's surprisal differs from the entropy by as much as its logarithm from the mean
    logarithm. That mean is known between bounds: outside, logarithms are at most the window's last,
    and least together where all weigh the same. A token stays if all that may be closer to the mean
    weigh less than `typical_p` asks for.
    """
    logs, row = kept.logs, np.arange(len(kept.logs))
    least, most = kept.total
    outside = np.maximum(kept.total - kept.ranked, 0)
    weights = np.where(kept.sums <= most[:, None], kept.weights, 0)
    moment = np.einsum("rn,rn->r", weights, logs)
    even_logs = np.log(np.maximum(outside[1], 1e-300) / max(num_outside, 1))
    low = (moment + outside[1] * even_logs) / least
    high = np.minimum((moment + outside[0] * logs[:, -1]) / most, 0)
    drawn = logs[row, ranks]
    distance = np.maximum(np.abs(drawn - low), np.abs(drawn - high))
    closest = np.maximum(np.maximum(low[:, None] - logs, logs - high[:, None]), 0)
    weights[row, ranks] = 0
    closer = np.where(closest < distance[:, None], weights, 0).sum(axis=1)
    closer += outside[1] * (low - logs[:, -1] < distance)
    is_known = (least == most) | (least >= kept.ranked)
    is_heavy = kept.weights[row, ranks] >= draws.epsilon_cutoff * most
    return is_known & is_heavy & (closer < draws.typical_p * least)

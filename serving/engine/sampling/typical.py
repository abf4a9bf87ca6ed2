"""Cuts by locally typical sampling (Meister et al. 2023): tokens stay whose surprisal is closest to
the entropy.

A token's surprisal differs from the entropy by as much as the logarithm of its weight differs from
the mean logarithm.
"""

import numpy as np

from serving.arrays import Array
from serving.engine.sampling.ranking import FilteredRanking


def cut_typical(ranking: FilteredRanking, typical_p: Array) -> None:
    """Apply `typical_p`, or leave it to a condition where the tokens outside are not known."""
    if ranking.others is not None:
        _cut(ranking, typical_p)
        return
    is_typical, mean_log = typical_p < 1, ranking.mean_log
    ranking.conditions.append(
        lambda ranks: ~is_typical | _stays(ranking, ranks, mean_log, typical_p)
    )
    ranking.is_open = ranking.is_open | is_typical


def _cut(ranking: FilteredRanking, typical_p: Array) -> None:
    rows = np.flatnonzero(typical_p < 1)
    logs, weights, sums = ranking.logs[rows], ranking.weights[rows], ranking.sums[rows]
    least, most = ranking.total[:, rows]
    means = ranking.certain_mean_log(rows)
    is_inside, is_left = most <= sums[:, -1], sums <= most[:, None]
    distances = np.where(is_left, np.abs(logs - means[:, None]), np.inf)
    farthest = _farthest(distances, weights, typical_p[rows] * most)
    is_near = farthest < means - logs[:, -1]  # nearer than all tokens outside
    is_certain = np.ones(len(typical_p), bool)
    is_certain[rows] = (least == most) & (is_inside | is_near)
    ranking.is_certain = ranking.is_certain & is_certain
    ranking.weights[rows] = np.where(distances <= farthest[:, None], weights, 0)
    ranking.sums[rows] = ranking.weights[rows].cumsum(axis=1)
    ranking.total[:, rows] = ranking.sums[rows, -1]


def _farthest(distances: Array, weights: Array, limits: Array) -> Array:
    """Tell how far the closest tokens reach that weigh at least so much together."""
    order = distances.argsort(axis=1)
    reached = np.take_along_axis(weights, order, 1).cumsum(axis=1)
    num_closer = np.minimum((reached < limits[:, None]).sum(axis=1), weights.shape[1] - 1)
    row = np.arange(len(weights))
    farthest: Array = distances[row, order[row, num_closer]]
    return farthest


def _stays(ranking: FilteredRanking, ranks: Array, mean_log: Array, typical_p: Array) -> Array:
    """Tell whether these tokens surely stay, bool [rows]: if all that may be closer to the mean,
    which is known between bounds, weigh less than `typical_p` asks for.
    """
    logs, row = ranking.logs, np.arange(len(ranking.logs))
    least, most = ranking.total
    low, high = mean_log
    most_outside = np.maximum(most - ranking.ranked, 0)
    weights = np.where(ranking.sums <= most[:, None], ranking.weights, 0)
    drawn = logs[row, ranks]
    distance = np.maximum(np.abs(drawn - low), np.abs(drawn - high))
    closest = np.maximum(np.maximum(low[:, None] - logs, logs - high[:, None]), 0)
    weights[row, ranks] = 0
    closer = np.where(closest < distance[:, None], weights, 0).sum(axis=1)
    closer += most_outside * (low - logs[:, -1] < distance)
    is_near: Array = closer < typical_p * least
    return is_near

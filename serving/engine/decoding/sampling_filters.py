"""The effect of sampling filters on a ranking: the likeliest tokens of each row, best first, and
bounds for the other tokens. The ranking may be a window or a whole row.

The total weight of the kept tokens lies between two bounds, because of the tokens outside the
ranking only bounds are known; every filter lowers the bounds. A token is proposed by inverting the
cumulative distribution, scaled to the upper bound, in the order of the ranking. If it lies below
the lower bound, it is certainly kept, and it is drawn. If it is not kept, another one is proposed
with a second random number. This is rejection sampling, so the distribution is exact. If the
ranking is not enough to decide, a longer one continues with the same proposal.

All operations compute a row independently of the number of rows; there are no matrix products.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.engine.arrays import Array
from serving.engine.decoding.sampling_inputs import SamplingInputs

LEAST_LOG = -1e4  # in place of log 0: its weight is 0, too, and 0 times it is a number
Condition = Callable[[Array], Array]


class FilteredRanking:
    """The first tokens of a ranking; after `cut_typical` a contiguous part of it.

    Pairs [2, rows] are bounds, the lower first.

    logs: f64 [rows, ranks], logarithms of weights; the likeliest token has the weight 1.
    weights: f64 [rows, ranks]
    sums: f64 [rows, ranks], cumulative weights.
    total: f64 [2, rows], total weight of the kept tokens, including those outside the ranking.
    others: f32 [rows, others], logarithms of the weights of all tokens outside, in any order; None
        if they are not known.
    is_certain: bool [rows], or one for all; False if a filter could not decide which tokens it
        keeps.
    conditions: further conditions for a drawn token: functions of ranks, i64 [rows], to bool
        [rows].
    """

    def __init__(
        self, logs: Array, outside: Array | float, num_outside: int, others: Array | None = None
    ) -> None:
        """outside: lower and upper bound of the total weight of all other tokens, [2, rows]; or
        their exact weight, [rows].
        """
        self.logs = logs
        self.weights = np.exp(logs)
        self.sums = self.weights.cumsum(axis=1)
        self.total = np.empty((2, len(logs)))
        np.add(self.sums[:, -1], outside, out=self.total)
        self.others = others
        self.is_certain: Array | np.bool = np.True_
        self.conditions: list[Condition] = []
        self._num_outside = num_outside
        self._row = np.arange(len(logs))

    @property
    def ranked_weight(self) -> Array:
        """Return the total weight of the tokens of the ranking, f64 [rows]."""
        return self.sums[:, -1]

    @property
    def mean_log(self) -> Array:
        """Return bounds of the mean logarithm of the weight of a kept token, f64 [2, rows]."""
        least, most = self.total
        if self.others is None:
            bounds, is_known = (
                self._mean_log_bounds(),
                (least == most) | (least >= self.ranked_weight),
            )
        else:
            bounds, is_known = np.tile(self.certain_mean_log(slice(None)), (2, 1)), least == most
        bounds[0, ~is_known], bounds[1, ~is_known] = -np.inf, 0
        return bounds

    def certain_mean_log(self, rows: Array | slice) -> Array:
        """Return it exactly, f64 [rows], for rows where the total is certain and all tokens are
        known.
        """
        assert self.others is not None, "they are known"
        logs, weights, sums, most = (
            self.logs[rows],
            self.weights[rows],
            self.sums[rows],
            self.total[1, rows],
        )
        moment = np.where(sums <= most[:, None], weights * logs, 0).sum(axis=1)
        is_inside = most <= sums[:, -1]
        outside = 0 if is_inside.all() else np.where(is_inside, 0, _moment_of(self.others[rows]))
        mean: Array = (moment + outside) / most
        return mean

    def _mean_log_bounds(self) -> Array:
        """Return its bounds for rows where tokens outside are not known.

        Outside, logarithms are at most the ranking's last. The sum of weights times logarithms is
        lowest if all weights are equal, and lowest of all if they are 1 / e.
        """
        least, most = self.total
        weights = np.where(self.sums <= most[:, None], self.weights, 0)
        moment = np.einsum("rn,rn->r", weights, self.logs)
        least_outside, most_outside = np.maximum(self.total - self.ranked_weight, 0)
        even = np.clip(self._num_outside / np.e, least_outside, most_outside)
        even_logs = np.log(np.maximum(even, 1e-300) / max(self._num_outside, 1))
        low = (moment + even * even_logs) / least
        return np.stack([low, np.minimum((moment + least_outside * self.logs[:, -1]) / most, 0)])

    def sums_at(self, ranks: Array) -> Array:
        sums: Array = self.sums[self._row, ranks]
        return sums

    def weights_at(self, ranks: Array) -> Array:
        weights: Array = self.weights[self._row, ranks]
        return weights

    def find(self, targets: Array) -> Array:
        """Return the ranks at which the cumulative weights exceed their targets, i64 [rows]; 0 if
        they never do.
        """
        ranks: Array = (self.sums > targets[:, None]).argmax(axis=1)
        return ranks

    def surely_keeps(self, ranks: Array) -> Array:
        """Return whether the tokens of these ranks are certainly kept, bool [rows]."""
        before = np.where(ranks > 0, self.sums[self._row, ranks - 1], 0)
        return (before < self.total[0]) & (self.weights_at(ranks) > 0)

    def cut_lighter(self, least: Array) -> None:
        """Remove the tokens with a weight below `least`, f64 [rows], which is at most 1."""
        num_lighter = (self.weights[:, ::-1] >= least[:, None]).argmax(axis=1)
        total = np.tile(self.sums_at(self.sums.shape[1] - 1 - num_lighter), (2, 1))
        total[0, least <= 0] = np.inf  # all tokens are kept, also those outside
        total[1, num_lighter == 0] = np.inf  # some tokens outside may be kept
        self.lower_total(total)

    def lower_total(self, total: Array) -> None:
        np.minimum(self.total, total, out=self.total)


def _moment_of(logs: Array) -> Array:
    """Return the sum of weights times their logarithms; [rows, tokens] to [rows]."""
    logs = np.maximum(logs, LEAST_LOG)
    moment: Array = np.einsum("rv,rv->r", np.exp(logs), logs)
    return moment


class FilteredWeights:
    """The effect of filters on whole rows: the weights of all tokens, the likeliest at 1.

    weights: f32 [rows, tokens]; removed tokens get 0.
    """

    def __init__(self, weights: Array) -> None:
        self.weights = weights

    def cut_lighter(self, least: Array) -> None:
        self.weights *= self.weights >= least[:, None]


KeptTokens = FilteredRanking | FilteredWeights


def cut_top_k(ranking: FilteredRanking, top_k: Array) -> None:
    """Keep the k likeliest tokens, and tokens with the same weight as the last of them, if the
    ranking contains them.
    """
    num_ranks = ranking.sums.shape[1]
    last = np.minimum(top_k, num_ranks).astype(np.int64) - 1
    ranking.cut_lighter(np.where(top_k < np.inf, ranking.weights_at(last), 0))
    np.minimum(
        ranking.total[1], ranking.ranked_weight, out=ranking.total[1], where=top_k <= num_ranks
    )


def cut_top_p(ranking: FilteredRanking, top_p: Array) -> None:
    limits = top_p * ranking.total
    last = (ranking.sums >= limits[:, :, None]).argmax(axis=2)
    total = ranking.sums_at(last)
    beyond = np.stack([limits[0], limits[1] + ranking.weights[:, -1]])  # the limit lies outside
    ranking.lower_total(np.where(limits <= ranking.ranked_weight, total, beyond))


def cut_min_p(tokens: KeptTokens, min_p: Array) -> None:
    """Keep tokens by their weight: the likeliest one has the weight 1."""
    tokens.cut_lighter(min_p)


@dataclass(frozen=True, slots=True)
class SamplingFilter:
    """A sampling filter.

    cut: applies it to the kept tokens.
    needs_ranking: it does not simply remove all tokens below a weight, and works only on a
        `FilteredRanking`. After `typical_p`, which does not keep the first tokens of a ranking, all
        filters are of this kind.
    """

    cut: Callable[[Any, Array], None]
    needs_ranking: bool = False


def cut_typical(ranking: FilteredRanking, typical_p: Array) -> None:
    """Apply `typical_p`; if the tokens outside are not known, add a condition instead."""
    if ranking.others is not None:
        _cut_typical_exactly(ranking, typical_p)
        return
    is_typical, mean_log = typical_p < 1, ranking.mean_log
    ranking.conditions.append(
        lambda ranks: ~is_typical | _is_surely_typical(ranking, ranks, mean_log, typical_p)
    )


def _cut_typical_exactly(ranking: FilteredRanking, typical_p: Array) -> None:
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
    """Return the distance within which the closest tokens reach the total weight `limits`."""
    order = distances.argsort(axis=1)
    reached = np.take_along_axis(weights, order, 1).cumsum(axis=1)
    num_closer = np.minimum((reached < limits[:, None]).sum(axis=1), weights.shape[1] - 1)
    row = np.arange(len(weights))
    farthest: Array = distances[row, order[row, num_closer]]
    return farthest


def _is_surely_typical(
    ranking: FilteredRanking, ranks: Array, mean_log: Array, typical_p: Array
) -> Array:
    """Return whether these tokens are certainly kept, bool [rows]: if all tokens that may be closer
    to the mean, which is known between bounds, weigh less than `typical_p`.
    """
    logs, row = ranking.logs, np.arange(len(ranking.logs))
    least, most = ranking.total
    low, high = mean_log
    most_outside = np.maximum(most - ranking.ranked_weight, 0)
    weights = np.where(ranking.sums <= most[:, None], ranking.weights, 0)
    drawn = logs[row, ranks]
    distance = np.maximum(np.abs(drawn - low), np.abs(drawn - high))
    closest = np.maximum(np.maximum(low[:, None] - logs, logs - high[:, None]), 0)
    weights[row, ranks] = 0
    closer = np.where(closest < distance[:, None], weights, 0).sum(axis=1)
    closer += most_outside * (low - logs[:, -1] < distance)
    is_near: Array = closer < typical_p * least
    return is_near


# In the order of their declaration.
FILTERS = {
    "top_k": SamplingFilter(cut_top_k, needs_ranking=True),
    "top_p": SamplingFilter(cut_top_p, needs_ranking=True),
    "min_p": SamplingFilter(cut_min_p),
    "typical_p": SamplingFilter(cut_typical, needs_ranking=True),
}
_NEED_RANKING = np.array([sampling_filter.needs_ranking for sampling_filter in FILTERS.values()])


def apply_filters(tokens: KeptTokens, inputs: SamplingInputs) -> None:
    """Apply all filters that are on in any row, in order."""
    for name, values in inputs.filters:
        FILTERS[name].cut(tokens, values)


def rows_needing_ranking(inputs: SamplingInputs) -> Array:
    """Return the rows with filters that work only on rankings, bool [rows]."""
    needs: Array = inputs.is_on[_NEED_RANKING].any(axis=0)
    return needs

"""Keeps what filters have left of a ranking: of each row the likeliest tokens, best first, and what
is known of the others. Where a ranking comes from is not known here.

What is left weighs together something between two bounds, as only that much is known of the tokens
outside a ranking; every filter brings the bounds down. A token is proposed by inverting the
cumulative distribution, scaled to the upper bound, in the ranking's order. It is drawn if it falls
below the lower bound, as it is surely left then. If it is not left, another is drawn with a second
random number. That is rejection sampling, so the outcome is exact. Where the ranking cannot tell, a
longer one takes over the proposal.

Everything is computed row by row, by operations whose result for a row does not depend on how many
rows there are: no matrix products.
"""

from collections.abc import Callable

import numpy as np

from serving.arrays import Array

LEAST_LOG = -1e4  # stands in for log 0; its weight is 0 all the same
Condition = Callable[[Array], Array]


class FilteredRanking:
    """Holds the first tokens of a ranking, or, after `cut_typical`, some that follow each other.

    Pairs [2, rows] are bounds, the lower first.

    logs: f64 [rows, ranks], logarithms of weights; the likeliest token weighs 1.
    weights: f64 [rows, ranks]
    sums: f64 [rows, ranks], what all tokens up to a rank weigh together.
    total: f64 [2, rows], what is left weighs, tokens outside the ranking included.
    others: f32 [rows, others], logarithms of weights of all tokens outside, in any order; None
        where they are not known.
    is_certain: bool [rows] or one for all, False where a filter could not tell what it leaves.
    is_open: bool [rows] or one for all, where a filter could not tell what it leaves but can of a
        single token: that is a condition. The total is then what was left before.
    conditions: what must hold of a drawn token beside the total's lower bound: functions of ranks,
        i64 [rows], to bool [rows].
    """

    def __init__(
        self, logs: Array, outside: Array | float, num_outside: int, others: Array | None = None
    ) -> None:
        """outside: the least and the most that all other tokens weigh together, [2, rows]; or what
        they do, [rows].
        """
        self.logs = logs
        self.weights = np.exp(logs)
        self.sums = self.weights.cumsum(axis=1)
        self.total = np.empty((2, len(logs)))
        np.add(self.sums[:, -1], outside, out=self.total)
        self.others = others
        self.is_certain: Array | np.bool = np.True_
        self.is_open: Array | np.bool = np.False_
        self.conditions: list[Condition] = []
        self._num_outside = num_outside
        self._row = np.arange(len(logs))

    @property
    def ranked(self) -> Array:
        """Weigh the tokens of the ranking together, f64 [rows]."""
        return self.sums[:, -1]

    @property
    def heaviest(self) -> Array:
        """Weigh the likeliest token that is left, f64 [rows]."""
        return self.weights.max(axis=1)

    @property
    def mean_log(self) -> Array:
        """Compute the mean logarithm of the weight of a token that is left, f64 [2, rows]."""
        least, most = self.total
        if self.others is None:
            bounds, is_known = self._mean_log_bounds(), (least == most) | (least >= self.ranked)
        else:
            bounds, is_known = np.tile(self.certain_mean_log(slice(None)), (2, 1)), least == most
        is_known = is_known & ~self.is_open
        bounds[0, ~is_known], bounds[1, ~is_known] = -np.inf, 0
        return bounds

    def certain_mean_log(self, rows: Array | slice) -> Array:
        """Compute it, f64 [rows], where the total is certain and all tokens are known."""
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
        """Bound it where tokens outside are not known.

        Outside, logarithms are at most the ranking's last; the sum of weights times logarithms is
        least where all weigh the same, and that is least where they weigh 1 / e.
        """
        least, most = self.total
        kept = np.where(self.sums <= most[:, None], self.weights, 0)
        moment = np.einsum("rn,rn->r", kept, self.logs)
        least_outside, most_outside = np.maximum(self.total - self.ranked, 0)
        even = np.clip(self._num_outside / np.e, least_outside, most_outside)
        even_logs = np.log(np.maximum(even, 1e-300) / max(self._num_outside, 1))
        low = (moment + even * even_logs) / least
        return np.stack([low, np.minimum((moment + least_outside * self.logs[:, -1]) / most, 0)])

    def sums_of(self, ranks: Array) -> Array:
        sums: Array = self.sums[self._row, ranks]
        return sums

    def weights_of(self, ranks: Array) -> Array:
        weights: Array = self.weights[self._row, ranks]
        return weights

    def find(self, targets: Array) -> Array:
        """Find the ranks at which the sums pass their targets, i64 [rows]; 0 if they never do."""
        ranks: Array = (self.sums > targets[:, None]).argmax(axis=1)
        return ranks

    def surely_has(self, ranks: Array) -> Array:
        """Tell whether the tokens of these ranks are left for certain, bool [rows]."""
        before = np.where(ranks > 0, self.sums[self._row, ranks - 1], 0)
        return (before < self.total[0]) & (self.weights_of(ranks) > 0)

    def cut_lighter(self, least: Array) -> None:
        """Drop the tokens that weigh less; least: f64 [rows] or bounds, [2, rows], none more than
        the likeliest weighs.
        """
        least = np.atleast_2d(least)
        if self.conditions:
            most_asked = least[-1]
            self.conditions.append(lambda ranks: self.weights_of(ranks) >= most_asked)
            least = np.where(self.is_open, 0, least)
        least = least[::-1]  # the upper bound decides about the total's lower one
        num_lighter = (self.weights[:, ::-1] >= least[:, :, None]).argmax(axis=2)
        total = np.empty_like(self.total)
        total[...] = self.sums[self._row, self.sums.shape[1] - 1 - num_lighter]
        total[0, least[0] <= 0] = np.inf  # all tokens stay, those outside too
        total[1, num_lighter[-1] == 0] = np.inf  # some outside may stay
        self.lower_total(total)

    def lower_total(self, total: Array) -> None:
        np.minimum(self.total, total, out=self.total)


def _moment_of(logs: Array) -> Array:
    """Sum weights times their logarithms; [rows, tokens] to [rows]."""
    logs = np.maximum(logs, LEAST_LOG)
    moment: Array = np.einsum("rv,rv->r", np.exp(logs), logs)
    return moment

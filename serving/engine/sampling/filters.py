"""Draws tokens from rankings: of each row the likeliest tokens, best first, and what is known of
the others. All filters are here; where a ranking comes from is not.

What the tokens that filters keep weigh together is known between two bounds only, as only that
much is known of the tokens outside a ranking; every filter brings the bounds down. A token is
proposed by inverting the cumulative distribution, scaled to the upper bound, in the ranking's
order. It is drawn if it falls below the lower bound, as it is surely kept then. If it is not kept,
another is drawn with a second random number. That is rejection sampling, so the outcome is exact.
Where the ranking cannot tell, a longer one takes over the proposal.

Everything is computed row by row, by operations whose result for a row does not depend on how many
rows there are: no matrix products.
"""

from dataclasses import dataclass, fields

import numpy as np

from serving.arrays import Array


@dataclass(slots=True)
class Draws:
    """What to draw, f64 [rows] each; see `SamplingParams` for the filters.

    exponents: 1 / temperature. top_k: infinite where all may stay. numbers, second_numbers: uniform
    in [0, 1).
    """

    exponents: Array
    top_k: Array
    top_p: Array
    min_p: Array
    typical_p: Array
    epsilon_cutoff: Array
    numbers: Array
    second_numbers: Array

    def of(self, rows: Array | slice) -> "Draws":
        return Draws(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def needs_ranking(self) -> Array:
        """Whether there are filters that do not simply drop all lighter tokens, bool [rows]."""
        return (self.top_k < np.inf) | (self.top_p < 1) | (self.typical_p < 1)


class Kept:
    """What filters have left: the first tokens of a ranking, or, after `cut_typical`, some that
    follow each other in it.

    logs: f64 [rows, ranks], logarithms of weights; the likeliest token weighs 1.
    weights: f64 [rows, ranks]
    sums: f64 [rows, ranks], what all tokens up to a rank weigh together.
    total: f64 [2, rows], bounds of what is kept, tokens outside the ranking included.
    """

    def __init__(self, logs: Array, outside: Array | float) -> None:
        """outside: the least and the most that all other tokens weigh together, [2, rows]; or what
        they do, [rows].
        """
        self.logs = logs
        self.weights = np.exp(logs)
        self.sums = self.weights.cumsum(axis=1)
        self.total = np.empty((2, len(logs)))
        np.add(self.sums[:, -1], outside, out=self.total)
        self._row = np.arange(len(logs))

    @property
    def ranked(self) -> Array:
        """f64 [rows], what the tokens of the ranking weigh together."""
        return self.sums[:, -1]

    def find(self, targets: Array) -> Array:
        """Ranks at which the sums pass their targets, i64 [rows]; 0 if they never do."""
        ranks: Array = (self.sums > targets[:, None]).argmax(axis=1)
        return ranks

    def surely_has(self, ranks: Array) -> Array:
        """Whether the tokens of these ranks are kept for certain, bool [rows]."""
        before = np.where(ranks > 0, self.sums[self._row, ranks - 1], 0)
        return (before < self.total[0]) & (self.weights[self._row, ranks] > 0)

    def cut_prefix(self, draws: Draws) -> None:
        """The filters that come before `typical_p`."""
        if draws.top_k.min() < np.inf:
            self._cut_top_k(draws.top_k)
        if draws.top_p.min() < 1:
            self._cut_top_p(draws.top_p)
        if draws.min_p.max() > 0:
            self._cut_lighter(draws.min_p[None])

    def cut_epsilon(self, epsilon: Array) -> None:
        """The likeliest token that is left always stays."""
        self._cut_lighter(np.minimum(epsilon * self.total[::-1], self.weights.max(axis=1)))

    def _cut_top_k(self, top_k: Array) -> None:
        """Tokens that weigh as much as the last of the k stay too, if the ranking has them."""
        num_ranks = self.sums.shape[1]
        last = np.minimum(top_k, num_ranks).astype(np.int64) - 1
        self._cut_lighter(np.where(top_k < np.inf, self.weights[self._row, last], 0)[None])
        np.minimum(self.total[1], self.ranked, out=self.total[1], where=top_k <= num_ranks)

    def _cut_top_p(self, top_p: Array) -> None:
        limits = top_p * self.total
        last = (self.sums >= limits[:, :, None]).argmax(axis=2)
        total = self.sums[self._row, last]
        beyond = np.stack([limits[0], limits[1] + self.weights[:, -1]])  # goes on outside
        self._lower_total(np.where(limits <= self.ranked, total, beyond))

    def _cut_lighter(self, least: Array) -> None:
        """Drop the tokens that weigh less; least: f64 [1 or 2, rows], none more than the likeliest
        weighs; the first of them decides about the lower bound.
        """
        num_lighter = (self.weights[:, ::-1] >= least[:, :, None]).argmax(axis=2)
        total = np.empty_like(self.total)
        total[...] = self.sums[self._row, self.sums.shape[1] - 1 - num_lighter]
        total[0, least[0] <= 0] = np.inf  # all tokens stay, those outside too
        total[1, num_lighter[-1] == 0] = np.inf  # some outside may stay
        self._lower_total(total)

    def _lower_total(self, total: Array) -> None:
        np.minimum(self.total, total, out=self.total)

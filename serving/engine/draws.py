"""Draws tokens from rankings: of each row the likeliest tokens, best first, and what is known of
the others. All filters are here; where a ranking comes from is not.

What the tokens that filters keep weigh together is known between two bounds only, as only that
much is known of the tokens outside a ranking; every filter brings the bounds down. A token is
proposed by inverting the cumulative distribution, scaled to the upper bound, in the ranking's
order. It is drawn if it is surely kept. If it is not kept, another is drawn with a second random
number. That is rejection sampling, so the outcome is exact. Where the ranking cannot tell, a longer
one takes over the proposal.

Everything is computed row by row, by operations whose result for a row does not depend on how many
rows there are: no matrix products.
"""

from dataclasses import dataclass, fields

import numpy as np

from serving.engine.memory import Array


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
    def is_filtered(self) -> Array:
        """bool [rows]"""
        is_cut = np.isfinite(self.top_k) | (self.min_p > 0) | (self.epsilon_cutoff > 0)
        return is_cut | (self.top_p < 1) | (self.typical_p < 1)


class Kept:
    """What filters have left: the first tokens of a ranking, or, after `cut_typical`, some that
    follow each other in it.

    logs: f64 [rows, ranks], logarithms of weights; the likeliest token weighs 1.
    weights: f64 [rows, ranks]
    sums: f64 [2, rows, ranks + 1], bounds of what all tokens up to a rank weigh together; at the
        end stands what all tokens weigh, those outside the ranking too.
    total: f64 [2, rows], bounds of what is kept.
    """

    def __init__(self, logs: Array, outside: Array) -> None:
        """outside: f64 [2, rows], the least and the most that other tokens can weigh together."""
        num_rows, self.num_ranks = logs.shape
        self.logs = logs
        self.weights = np.exp(logs)
        self.sums = np.empty((2, num_rows, self.num_ranks + 1))
        self.sums[:, :, :-1] = self.weights.cumsum(axis=1)
        np.add(self.sums[:, :, -2], outside, out=self.sums[:, :, -1])
        self.total = self.sums[:, :, -1].copy()
        self._bound, self._row = np.array([[0], [1]]), np.arange(num_rows)

    def find(self, targets: Array) -> Array:
        """Ranks where the sums pass their targets; `num_ranks` where that is outside."""
        ranks: Array = (self.sums[0, :, :-1] > targets[:, None]).argmax(axis=1)
        ranks[targets >= self.sums[0, :, -2]] = self.num_ranks
        return ranks

    def surely_has(self, ranks: Array) -> Array:
        """bool [rows]; `num_ranks` is never sure."""
        before = np.where(ranks > 0, self.sums[0, self._row, ranks - 1], 0)
        weights = self.weights[self._row, np.minimum(ranks, self.num_ranks - 1)]
        return (ranks < self.num_ranks) & (before < self.total[0]) & (weights > 0)

    def cut_prefix(self, draws: Draws) -> None:
        """The filters that come before `typical_p`."""
        if draws.top_k.min() < np.inf:
            self.cut_top_k(draws.top_k)
        if draws.top_p.min() < 1:
            self.cut_top_p(draws.top_p)
        if draws.min_p.max() > 0:
            self._cut_lighter(draws.min_p[None])

    def cut_top_k(self, top_k: Array) -> None:
        """Tokens that weigh as much as the last of the k stay too."""
        last = np.minimum(top_k, self.num_ranks).astype(np.int64) - 1
        self._cut_lighter(np.where(top_k < np.inf, self.weights[self._row, last], 0)[None])

    def cut_top_p(self, top_p: Array) -> None:
        limits = top_p * self.total
        last = (self.sums >= limits[:, :, None]).argmax(axis=2)
        reached = self.sums[self._bound, self._row, last]
        beyond = limits  # where the nucleus goes on outside: its last token weighs little
        beyond[1] += self.weights[:, -1]
        self._lower_total(np.where(last < self.num_ranks, reached, beyond))

    def cut_epsilon(self, epsilon: Array) -> None:
        """The likeliest token that is left always stays."""
        self._cut_lighter(np.minimum(epsilon * self.total[::-1], self.weights.max(axis=1)))

    def _cut_lighter(self, least: Array) -> None:
        """Drop the tokens that weigh less; least: f64 [1 or 2, rows], none more than the likeliest
        weighs; the first of them decides about the lower bound.
        """
        num_lighter = (self.weights[:, ::-1] >= least[:, :, None]).argmax(axis=2)
        last = np.empty(self.total.shape, np.int64)
        np.subtract(self.num_ranks - 1, num_lighter, out=last)
        last[0] += least[0] <= 0  # all tokens stay, those outside too
        last[1] += num_lighter[-1] == 0  # some outside may stay
        self._lower_total(self.sums[self._bound, self._row, last])

    def _lower_total(self, total: Array) -> None:
        np.minimum(self.total, total, out=self.total)

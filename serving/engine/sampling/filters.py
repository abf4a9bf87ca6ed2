"""Says how each filter cuts. `FILTERS` is the table that rankings and whole rows are walked by.

A filter's values are f64 [rows], one for each row, among them some that change nothing. It acts on
what the filters before it have left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from serving.arrays import Array
from serving.engine.sampling.draws import Draws
from serving.engine.sampling.ranking import FilteredRanking
from serving.engine.sampling.typical import cut_typical

LEAST_WEIGHT = np.finfo(np.float32).tiny  # stands in for 0 where a logarithm is taken


class Left(Protocol):
    """Tells what is left of rows: f64 [rows], or bounds, [2, rows], the lower first."""

    @property
    def total(self) -> Array:
        """Weigh all tokens that are left."""

    @property
    def heaviest(self) -> Array:
        """Weigh the likeliest of them."""

    @property
    def mean_log(self) -> Array:
        """Compute the mean logarithm of their weights."""

    def cut_lighter(self, least: Array) -> None:
        """Drop the tokens that weigh less than this, which no heaviest may."""


class FilteredWeights:
    """Holds what filters have left of whole rows: the weights of all tokens, the likeliest at 1.

    weights: f32 [rows, tokens], of which those that are dropped become 0.
    """

    def __init__(self, weights: Array) -> None:
        self.weights = weights
        self.heaviest = np.ones(len(weights))

    @property
    def total(self) -> Array:
        total: Array = np.einsum("rv->r", self.weights)
        return total

    @property
    def mean_log(self) -> Array:
        logs = np.log(np.maximum(self.weights, LEAST_WEIGHT))
        mean: Array = np.einsum("rv,rv->r", self.weights, logs) / self.total
        return mean

    def cut_lighter(self, least: Array) -> None:
        self.weights *= self.weights >= least[:, None]


def cut_top_k(ranking: FilteredRanking, top_k: Array) -> None:
    """Leave tokens that weigh as much as the last of the k too, if the ranking has them."""
    num_ranks = ranking.sums.shape[1]
    last = np.minimum(top_k, num_ranks).astype(np.int64) - 1
    ranking.cut_lighter(np.where(top_k < np.inf, ranking.weights_of(last), 0))
    np.minimum(ranking.total[1], ranking.ranked, out=ranking.total[1], where=top_k <= num_ranks)


def cut_top_p(ranking: FilteredRanking, top_p: Array) -> None:
    limits = top_p * ranking.total
    last = (ranking.sums >= limits[:, :, None]).argmax(axis=2)
    total = ranking.sums_of(last)
    beyond = np.stack([limits[0], limits[1] + ranking.weights[:, -1]])  # goes on outside
    ranking.lower_total(np.where(limits <= ranking.ranked, total, beyond))


def cut_min_p(left: Left, min_p: Array) -> None:
    left.cut_lighter(min_p * left.heaviest)


def cut_epsilon(left: Left, epsilon: Array) -> None:
    left.cut_lighter(np.minimum(epsilon * left.total, left.heaviest))


def cut_eta(left: Left, eta: Array) -> None:
    """Drop by weight: exp(-entropy) is exp(mean_log) / total."""
    least = np.minimum(eta * left.total, np.sqrt(eta) * np.exp(left.mean_log))
    left.cut_lighter(np.minimum(least, left.heaviest))


@dataclass(frozen=True, slots=True)
class Filter:
    """Says how a filter is applied.

    cut: applies it to what is left.
    needs_ranking: it does not simply drop all lighter tokens, and so acts on a `FilteredRanking`
        only. After a filter that leaves no first tokens of a
    ranking, `typical_p`, come only such that do.
    """

    cut: Callable[[Any, Array], None]
    needs_ranking: bool = False


# In the order of their declaration.
FILTERS = {
    "top_k": Filter(cut_top_k, needs_ranking=True),
    "top_p": Filter(cut_top_p, needs_ranking=True),
    "min_p": Filter(cut_min_p),
    "typical_p": Filter(cut_typical, needs_ranking=True),
    "epsilon_cutoff": Filter(cut_epsilon),
    "eta_cutoff": Filter(cut_eta),
}
_NEED_RANKING = np.array([each.needs_ranking for each in FILTERS.values()])


def apply_filters(left: Left, draws: Draws) -> None:
    """Apply all filters that are on in any row, in order."""
    for name, values in draws.filters:
        FILTERS[name].cut(left, values)


def need_ranking(draws: Draws) -> Array:
    """Tell which rows have filters that act on rankings only, bool [rows]."""
    needs: Array = draws.is_on[_NEED_RANKING].any(axis=0)
    return needs

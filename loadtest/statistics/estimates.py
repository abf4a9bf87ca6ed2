"""Holds a figure with its confidence interval, and says where there are too few samples for one.

Percentiles are numpys (linear between neighbours). Their intervals suppose nothing about the shape
of a distribution: those of independent samples come from order statistics (Conover, Practical
Nonparametric Statistics, 3.2), those of samples that belong together, such as the gaps of one
stream, from Woodruff's method with the variance between clusters (JASA 1952).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959964  # of (1 + CONFIDENCE) / 2
PERCENTS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Holds one figure and its 95 % confidence interval.

    value: None where it cannot be told; `reason` says why. low, high: None where the samples do
    not bound the figure on that side.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def scaled(self, factor: float) -> "Estimate":
        value, low, high = (
            None if each is None else each * factor for each in (self.value, self.low, self.high)
        )
        return Estimate(value, low, high, self.reason)

    def as_json(self) -> dict[str, Any]:
        found = {"value": self.value, "low": self.low, "high": self.high}
        return {**found, "reason": self.reason} if self.reason else found


@dataclass(frozen=True, slots=True)
class Samples:
    """Holds measured values. clusters: for each value the number of what it belongs to, from 0;
    None where every value stands for itself.
    """

    values: Floats
    clusters: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Distribution:
    count: int
    mean: Estimate
    minimum: Estimate
    maximum: Estimate
    percentiles: dict[float, Estimate]


def distribution(samples: Samples) -> Distribution:
    order = np.argsort(samples.values, kind="stable")
    values = samples.values[order]
    clusters = None if samples.clusters is None else samples.clusters[order]
    ordered = Samples(values, clusters)
    if not len(values):
        nothing = Estimate(None, reason="no samples")
        return Distribution(0, nothing, nothing, nothing, dict.fromkeys(PERCENTS, nothing))
    return Distribution(
        count=len(values),
        mean=mean(ordered),
        minimum=Estimate(float(values[0])),
        maximum=Estimate(float(values[-1])),
        percentiles={percent: percentile(ordered, percent) for percent in PERCENTS},
    )


def percentile(ordered: Samples, percent: float) -> Estimate:
    """Estimate a percentile of values in rising order; at least one must be expected beyond it."""
    part = percent / 100
    needed = math.ceil(round(1 / (1 - part), 6))
    if len(ordered) < needed:
        return Estimate(None, reason=f"{len(ordered)} samples, p{percent:g} needs {needed}")
    value = float(np.quantile(ordered.values, part))
    if ordered.clusters is None:
        low, high = order_statistics(len(ordered), part)
    else:
        low, high = _clustered_ranks(ordered, part, value)
    return Estimate(value, _at(ordered.values, low), _at(ordered.values, high))


@lru_cache(maxsize=1024)
def order_statistics(count: int, part: float) -> tuple[int, int]:
    """Return the ranks, from 1, between which a quantile lies with at least 95 % confidence.

    A rank of 0 or of count + 1 is no sample: the samples do not bound the quantile on that side.
    """
    tail = (1 - CONFIDENCE) / 2
    first, cumulative = _binomial_cumulative(count, part)
    low = first + int(np.searchsorted(cumulative, tail, side="right"))
    high = first + int(np.searchsorted(cumulative, 1 - tail, side="left")) + 1
    return low, min(high, count + 1)


def _binomial_cumulative(count: int, part: float) -> tuple[int, Floats]:
    """Return P(B <= k) for a binomial B and all k that matter, and the first such k."""
    centre, spread = count * part, math.sqrt(count * part * (1 - part))
    first = max(0, math.floor(centre - 9 * spread - 9))
    last = min(count, math.ceil(centre + 9 * spread + 9))
    k = np.arange(first, last)
    steps = np.log((count - k) / (k + 1)) + math.log(part / (1 - part))
    start = (
        math.lgamma(count + 1)
        - math.lgamma(first + 1)
        - math.lgamma(count - first + 1)
        + first * math.log(part)
        + (count - first) * math.log1p(-part)
    )
    return first, np.cumsum(np.exp(start + np.concatenate([[0.0], np.cumsum(steps)])))


def _clustered_ranks(ordered: Samples, part: float, value: float) -> tuple[int, int]:
    """Return ranks as `order_statistics` does, from how clusters differ in their share below."""
    assert ordered.clusters is not None
    excess = (ordered.values <= value) - part
    sums = np.bincount(ordered.clusters, weights=excess)
    error = NORMAL_QUANTILE * math.sqrt(float(np.sum(sums**2)) + part * (1 - part))
    centre, count = part * len(ordered), len(ordered)
    return max(0, math.floor(centre - error)), min(count + 1, math.ceil(centre + error) + 1)


def _at(values: Floats, rank: int) -> float | None:
    return float(values[rank - 1]) if 1 <= rank <= len(values) else None


def mean(samples: Samples) -> Estimate:
    """Estimate a mean; its interval is normal, by the variance between clusters where there are."""
    value = float(np.mean(samples.values))
    off: Floats = samples.values - value
    if samples.clusters is not None:
        off = np.bincount(samples.clusters, weights=off).astype(np.float64)
    if len(off) < 2:
        return Estimate(value)
    error = NORMAL_QUANTILE * math.sqrt(float(np.sum(off**2)) * len(off) / (len(off) - 1))
    half = error / len(samples)
    return Estimate(value, value - half, value + half)


def proportion(found: int, count: int) -> Estimate:
    """Estimate a share; the interval is Wilson's (1927), which holds near 0 and 1 too."""
    if not count:
        return Estimate(None, reason="no samples")
    share, z2 = found / count, NORMAL_QUANTILE**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    spread = math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    half = NORMAL_QUANTILE * spread / (1 + z2 / count)
    low = centre - half if found else 0.0
    high = centre + half if found < count else 1.0
    return Estimate(share, low, high)

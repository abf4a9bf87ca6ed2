"""A figure with its 95 % confidence interval, or the reason why there is none.

Percentiles are numpy's (linear between neighbours). Their intervals assume nothing about the shape
of a distribution: they are order statistics whose ranks come from Woodruff's method (JASA 1952),
with the variance between clusters for samples that belong together, such as the gaps of one stream.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959964  # of (1 + CONFIDENCE) / 2
PERCENTS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its interval.

    value: None if it is unknown; `reason` says why.
    low, high: None where the samples do not bound the figure on that side.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def scale(self, factor: float) -> "Estimate":
        value, low, high = (
            None if number_or_none is None else number_or_none * factor
            for number_or_none in (self.value, self.low, self.high)
        )
        return Estimate(value, low, high, self.reason)

    def as_json(self) -> dict[str, Any]:
        record = {"value": self.value, "low": self.low, "high": self.high}
        return {**record, "reason": self.reason} if self.reason else record


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured values. clusters: for each value the number, from 0, of the cluster that it belongs
    to; None if every value is independent.
    """

    values: Floats
    clusters: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Distribution:
    count: int
    mean: Estimate
    maximum: Estimate
    percentiles: dict[float, Estimate]


def distribution(samples: Samples) -> Distribution:
    if not len(samples):
        nothing = Estimate(None, reason="no samples")
        return Distribution(0, nothing, nothing, dict.fromkeys(PERCENTS, nothing))
    order = np.argsort(samples.values, kind="stable")
    clusters = None if samples.clusters is None else samples.clusters[order]
    ordered = Samples(samples.values[order], clusters)
    return Distribution(
        count=len(ordered),
        mean=mean(ordered),
        maximum=Estimate(float(ordered.values[-1])),
        percentiles={percent: percentile(ordered, percent) for percent in PERCENTS},
    )


def percentile(ordered: Samples, percent: float) -> Estimate:
    """Estimate a percentile of values in rising order, if at least one is expected beyond it."""
    part, count = percent / 100, len(ordered)
    needed = math.ceil(round(1 / (1 - part), 6))
    if count < needed:
        return Estimate(None, reason=f"{count} samples, p{percent:g} needs {needed}")
    value = float(np.quantile(ordered.values, part))
    excess = _sums((ordered.values <= value).astype(np.float64) - part, ordered.clusters)
    error = NORMAL_QUANTILE * math.sqrt(float(np.sum(excess**2)) + part * (1 - part))
    low, high = math.floor(part * count - error), math.ceil(part * count + error) + 1
    return Estimate(
        value, _order_statistic(ordered.values, low), _order_statistic(ordered.values, high)
    )


def _order_statistic(values: Floats, rank: int) -> float | None:
    """Return the value of a rank from 1; None where the samples do not reach."""
    return float(values[rank - 1]) if 1 <= rank <= len(values) else None


def _sums(values: Floats, clusters: NDArray[np.int64] | None) -> Floats:
    """Return the sum of each cluster."""
    if clusters is None:
        return values
    return np.bincount(clusters, weights=values).astype(np.float64)


def mean(samples: Samples) -> Estimate:
    """Estimate a mean with a normal interval, from the variance between clusters."""
    value = float(np.mean(samples.values))
    off = _sums(samples.values - value, samples.clusters)
    if len(off) < 2:
        return Estimate(value)
    error = NORMAL_QUANTILE * math.sqrt(float(np.sum(off**2)) * len(off) / (len(off) - 1))
    half = error / len(samples)
    return Estimate(value, value - half, value + half)


def proportion(num_successes: int, count: int) -> Estimate:
    """Estimate a share with Wilson's interval (1927), which is good near 0 and 1 too."""
    if not count:
        return Estimate(None, reason="no samples")
    share, z2 = num_successes / count, NORMAL_QUANTILE**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    spread = math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    half = NORMAL_QUANTILE * spread / (1 + z2 / count)
    low = centre - half if num_successes else 0.0
    high = centre + half if num_successes < count else 1.0
    return Estimate(share, low, high)

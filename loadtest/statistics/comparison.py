"""Compares two runs: by how much the median of a latency changed, and whether by chance.

The interval of the ratio is a bootstrap's, which takes requests as independent. It says nothing of
what differs between runs for other reasons, such as what else the machine did.
"""

from dataclasses import dataclass

import numpy as np

from loadtest.statistics.estimates import CONFIDENCE, Estimate, Floats
from loadtest.statistics.figures import Figures
from loadtest.statistics.measures import MEASURES, samples_of

RESAMPLES = 10_000
SEED = 0
FEWEST = 20
COMPARED = ("ttft", "tpot", "e2e")  # those with one value a request


@dataclass(frozen=True, slots=True)
class Difference:
    """The medians of a latency, in seconds, and the ratio of the second one to the first."""

    measure: str
    medians: tuple[float, float]
    ratio: Estimate

    @property
    def is_significant(self) -> bool:
        assert self.ratio.low is not None
        assert self.ratio.high is not None
        return not self.ratio.low <= 1 <= self.ratio.high


def differences(first: Figures, second: Figures) -> list[Difference]:
    found = []
    for name in COMPARED:
        a, b = (
            samples_of(figures.recording.counted(), MEASURES[name]).values
            for figures in (first, second)
        )
        if min(len(a), len(b)) >= FEWEST:
            medians = (float(np.median(a)), float(np.median(b)))
            found.append(Difference(name, medians, ratio_of_medians(a, b)))
    return found


def ratio_of_medians(first: Floats, second: Floats) -> Estimate:
    """Estimate the second median over the first, with a bootstrap interval."""
    rng = np.random.default_rng(SEED)
    ratios = _resampled_medians(second, rng) / _resampled_medians(first, rng)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Estimate(float(np.median(second) / np.median(first)), float(low), float(high))


def _resampled_medians(values: Floats, rng: np.random.Generator) -> Floats:
    """Draw bootstrap medians. The rank of a resample's median follows a beta distribution, which
    saves the resampling itself (Efron, The Jackknife, the Bootstrap, 10.3).
    """
    ordered, half = np.sort(values), len(values) // 2
    places = rng.beta(half + 1, len(values) - half, RESAMPLES) * len(values)
    return ordered[np.minimum(places.astype(np.int64), len(values) - 1)]


def in_words(found: Difference, names: tuple[str, str]) -> str:
    first, second = names
    title, ratio = MEASURES[found.measure].title, found.ratio
    numbers = f"ratio of medians {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    if not found.is_significant:
        return f"The {title} of {second} does not differ from that of {first}: {numbers}."
    word = "longer" if found.medians[1] > found.medians[0] else "shorter"
    return f"The {title} of {second} is {word} than that of {first}: {numbers}."

"""Compares two runs: by how much the median of a latency changed, and whether chance explains it.

Medians are compared by the bootstrap, whole distributions by the Mann-Whitney test. Both take
requests as independent draws; they say nothing about what differs from run to run for other
reasons, such as what else the machine did.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from loadtest.records import counted
from loadtest.statistics.estimates import CONFIDENCE, Estimate, Floats
from loadtest.statistics.figures import Figures
from loadtest.statistics.measures import MEASURES, samples_of

RESAMPLES = 10_000
SEED = 0
FEWEST = 20
COMPARED = ("ttft", "tpot", "e2e")  # one value a request, as the tests want it
RATES = ("answers_per_second", "tokens_per_second", "sentences_per_second", "goodput_per_second")


@dataclass(frozen=True, slots=True)
class Difference:
    """Holds how the second run's latency stands to the first's.

    ratio: of the medians. slower: the chance that a request of the second run takes longer than one
    of the first, ties halved. p: of the Mann-Whitney test, two-sided.
    """

    measure: str
    medians: tuple[float, float]
    ratio: Estimate
    slower: float
    p: float

    @property
    def is_significant(self) -> bool:
        return self.p < 1 - CONFIDENCE


def differences(first: Figures, second: Figures) -> list[Difference]:
    found = []
    for name in COMPARED:
        a, b = (
            samples_of(counted(figures.recording), MEASURES[name]).values
            for figures in (first, second)
        )
        if min(len(a), len(b)) >= FEWEST:
            found.append(difference(name, a, b))
    return found


def difference(measure: str, first: Floats, second: Floats) -> Difference:
    slower, p = mann_whitney(first, second)
    medians = (float(np.median(first)), float(np.median(second)))
    return Difference(measure, medians, ratio_of_medians(first, second), slower, p)


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


def mann_whitney(first: Floats, second: Floats) -> tuple[float, float]:
    """Return the chance that a second value is larger, and the two-sided p that this is by chance.

    The normal approximation, with its correction for ties and continuity, from 20 values on each.
    """
    n, m = len(first), len(second)
    _, places, counts = np.unique(
        np.concatenate([first, second]), return_inverse=True, return_counts=True
    )
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    larger = float(ranks[n:].sum()) - m * (m + 1) / 2
    ties = float(np.sum(counts**3.0 - counts)) / ((n + m) * (n + m - 1))
    spread = math.sqrt(n * m / 12 * (n + m + 1 - ties))
    if not spread:
        return 0.5, 1.0
    z = max(0.0, abs(larger - n * m / 2) - 0.5) / spread
    return larger / (n * m), 2 * NormalDist().cdf(-z)


def in_words(found: Difference, names: tuple[str, str]) -> str:
    """Say what was found in one sentence."""
    first, second = names
    title = MEASURES[found.measure].title
    if not found.is_significant:
        return (
            f"The {title} of {second} does not differ from that of {first} beyond chance "
            f"(ratio of medians {_ratio(found.ratio)}, p = {found.p:.2f})."
        )
    is_slower = found.slower > 0.5
    share = found.slower if is_slower else 1 - found.slower
    word, p = "longer" if is_slower else "shorter", max(found.p, 1e-4)
    sign = "<" if found.p < p else "="
    return (
        f"The {title} of {second} is {word} than that of {first}: ratio of medians "
        f"{_ratio(found.ratio)}; a request to {second} takes {word} in {100 * share:.0f} % of all "
        f"pairs (p {sign} {p:.2g})."
    )


def _ratio(found: Estimate) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"

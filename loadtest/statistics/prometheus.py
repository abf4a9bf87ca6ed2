"""Reads how far the server's counters and histograms went between two scrapes of its metrics."""

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

Counts = Mapping[str, float]


@lru_cache(maxsize=8192)
def name_and_labels(key: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Take `name{label="value"}` apart."""
    [family] = text_string_to_metric_families(f"{key} 0\n")
    [sample] = family.samples
    return sample.name, tuple(sample.labels.items())


def increase(before: Counts, after: Counts, name: str, **labels: str) -> float | None:
    """Sum over all models and replicas how far a counter went; None where there is none."""
    found = [after[key] - before.get(key, 0.0) for key in after if _is(key, name, labels)]
    return sum(found) if found else None


def histogram_increase(
    before: Counts, after: Counts, name: str, **labels: str
) -> dict[float, float]:
    """Return the observations between two scrapes, cumulated, by the upper bounds of buckets."""
    found: dict[float, float] = defaultdict(float)
    for key in after:
        if _is(key, f"{name}_bucket", labels):
            bound = float(dict(name_and_labels(key)[1])["le"])
            found[bound] += after[key] - before.get(key, 0.0)
    return dict(sorted(found.items()))


def histogram_quantile(buckets: Mapping[float, float], part: float) -> float | None:
    """Estimate a quantile as Prometheus does: linearly inside the bucket it falls into. None where
    nothing was observed, or where it lies beyond the last bound.
    """
    total = max(buckets.values(), default=0.0)
    low, below = 0.0, 0.0
    for bound, count in buckets.items():
        if total and count >= part * total:
            if math.isinf(bound):
                return None
            return low + (bound - low) * (part * total - below) / (count - below)
        low, below = bound, count
    return None


def _is(key: str, name: str, labels: Mapping[str, str]) -> bool:
    if not key.startswith(name):
        return False
    own, found = name_and_labels(key)
    return own == name and labels.items() <= dict(found).items()

"""Puts the server's own metrics beside what the client saw, and says by how much they differ."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from loadtest.records import Recording, ServerSample, counted
from loadtest.statistics.measures import MEASURES, samples_of
from loadtest.statistics.rates import answered_inside, ended_inside

QUANTILES = (50.0, 95.0, 99.0)
# what the server measures, and the client's measure beside it
HISTOGRAMS = {
    "attendant_time_to_first_token_seconds": "ttft",
    "attendant_inter_token_seconds": "itl",
    "attendant_request_seconds": "e2e",
    "attendant_queue_seconds": None,
}
# which of what it measured: the client's measures are those of good answers
ONLY = {"attendant_request_seconds": {"outcome": "success"}}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Holds one quantity as both saw it; the client has no view of some. Seconds, or a count."""

    name: str
    client: float | None
    server: float
    is_time: bool

    @property
    def difference(self) -> float | None:
        """Return how much more the server says than the client, as a part of the client's."""
        if self.client is None or self.client == 0:
            return None
        return self.server / self.client - 1


def compare_with_server(recording: Recording) -> list[Comparison]:
    """Compare over the window, by the scrapes nearest to its two ends."""
    found = _nearest_scrapes(recording)
    if found is None:
        return []
    before, after = (sample.metrics for sample in found)
    return [*_counts(recording, before, after), *_times(recording, before, after)]


def server_tokens_per_second(recording: Recording) -> float | None:
    """Return how fast the server's counter of generated tokens went; None where it has none."""
    found = _nearest_scrapes(recording)
    if found is None:
        return None
    before, after = found
    metric = "attendant_tokens_total"
    tokens = increase(before.metrics, after.metrics, metric, kind="generated")
    return None if tokens is None else tokens / (after.time - before.time)


def _nearest_scrapes(recording: Recording) -> tuple[ServerSample, ServerSample] | None:
    """Return those nearest to where the window opens and closes; None without two."""

    def nearest(time: float) -> ServerSample:
        return min(recording.server, key=lambda sample: abs(sample.time - time))

    if not recording.server:
        return None
    before, after = nearest(recording.window.opened), nearest(recording.window.closed)
    return (before, after) if before.time < after.time else None


Counts = Mapping[str, float]


def _counts(recording: Recording, before: Counts, after: Counts) -> list[Comparison]:
    answers = answered_inside(recording)
    told = [request.output_tokens for request in answers if request.output_tokens is not None]
    tokens = float(sum(told)) if answers and len(told) == len(answers) else None
    refused = sum(request.status in (429, 503) for request in ended_inside(recording))
    seen = [
        ("generated tokens", tokens, "attendant_tokens_total", {"kind": "generated"}),
        ("answers", float(len(answers)), "attendant_requests_total", {"outcome": "success"}),
        ("overloaded", float(refused), "attendant_requests_total", {"outcome": "overloaded"}),
    ]
    return [
        Comparison(name, client, count, is_time=False)
        for name, client, metric, labels in seen
        if (count := increase(before, after, metric, **labels)) is not None
    ]


def _times(recording: Recording, before: Counts, after: Counts) -> list[Comparison]:
    requests = counted(recording)
    found = []
    for metric, measure in HISTOGRAMS.items():
        buckets = histogram_increase(before, after, metric, **ONLY.get(metric, {}))
        seen = samples_of(requests, MEASURES[measure]).values if measure else np.empty(0)
        for percent in QUANTILES:
            server = histogram_quantile(buckets, percent / 100)
            if server is not None:
                client = float(np.percentile(seen, percent)) if len(seen) else None
                title = metric.removeprefix("attendant_").removesuffix("_seconds").replace("_", " ")
                found.append(Comparison(f"{title} p{percent:g}", client, server, is_time=True))
    return found


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

"""Draws a run out over time: for each slice of it what was asked, answered and refused, and how
long those took that were due in it.
"""

import math
from dataclasses import dataclass

import numpy as np

from loadtest.records import Recording
from loadtest.statistics.estimates import Floats
from loadtest.statistics.measures import (
    MEASURES,
    Measure,
    is_answer,
    is_failure,
)

MOST_SLICES = 300


@dataclass(frozen=True, slots=True)
class Series:
    """Holds figures by slice. times: where each slice begins. Rates are per second; latencies are
    percentiles in seconds by when a request was due, NaN where none was.
    """

    width: float
    times: Floats
    offered: Floats
    answered: Floats
    failed: Floats
    tokens: Floats
    in_flight: Floats
    latencies: dict[str, dict[float, Floats]]


LATENCIES = ("ttft", "e2e")
PERCENTS = (50.0, 95.0)


def series(recording: Recording) -> Series:
    """Cut the whole run, warm-up included, into slices of a second, or longer in a long run."""
    requests = recording.requests
    end = max([recording.window.closed, *(request.end for request in requests)])
    width = float(max(1, math.ceil(end / MOST_SLICES)))
    edges = np.arange(max(1, math.ceil(end / width)) + 1, dtype=np.float64) * np.float64(width)
    intended = np.array([request.intended for request in requests], dtype=np.float64)
    ends = np.array([request.end for request in requests], dtype=np.float64)
    answers = np.array([is_answer(request) for request in requests], dtype=bool)
    failures = np.array([is_failure(request) for request in requests], dtype=bool)
    tokens = np.array([request.output_tokens or 0 for request in requests], dtype=np.float64)
    begun, over = (np.histogram(times, edges)[0] for times in (intended, ends))
    return Series(
        width=width,
        times=edges[:-1],
        offered=begun / width,
        answered=np.histogram(ends[answers], edges)[0] / width,
        failed=np.histogram(ends[failures], edges)[0] / width,
        tokens=np.histogram(ends, edges, weights=tokens)[0] / width,
        in_flight=np.cumsum(begun - over).astype(np.float64),
        latencies={name: _latencies(recording, MEASURES[name], edges) for name in LATENCIES},
    )


def _latencies(recording: Recording, measure: Measure, edges: Floats) -> dict[float, Floats]:
    answers = [request for request in recording.requests if is_answer(request)]
    pairs = [(r.intended, value) for r in answers for value in measure.of(r)]
    if not pairs:
        return {}
    due, seconds = np.array(pairs).T
    slices = np.digitize(due, edges) - 1
    found = {percent: np.full(len(edges) - 1, np.nan) for percent in PERCENTS}
    for each in np.unique(slices):
        inside = seconds[slices == each]
        for percent in PERCENTS:
            found[percent][each] = np.percentile(inside, percent)
    return found

"""Rates per second, goodput, and how both develop during a run.

An answer counts when it ends inside the window, whenever it was asked for: an overloaded server is
credited with what it answered, not with what it was asked.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.records import CANCELLED, Recording, Request
from loadtest.statistics.estimates import Estimate, Floats, proportion
from loadtest.statistics.measures import MEASURES, Measure, is_answer, is_failure

BATCHES = 10
STUDENT_QUANTILE = 2.262157  # 0.975, 9 degrees of freedom
MOST_SLICES = 300
LATENCIES = ("ttft", "e2e")
SHOWN_PERCENTS = (50.0, 95.0)
BY_ANSWERS = "usage of the answers"
BY_SERVER = "the server's metrics"


def rates(recording: Recording) -> tuple[dict[str, Estimate], str | None]:
    """Return figures by name, and who counted the tokens: None if nobody did."""
    answers = [request for request in recording.ended_inside() if is_answer(request)]
    ends = [request.end for request in answers]
    due = [request.intended for request in recording.due_inside()]
    sentences = [request.sentences for request in answers]
    tokens, counted_by = _token_rate(recording, answers, ends)
    return {
        "answers_per_second": _rate(recording, ends, [1] * len(ends)),
        "offered_per_second": _rate(recording, due, [1] * len(due)),
        "tokens_per_second": tokens,
        "sentences_per_second": _rate(recording, ends, sentences)
        if any(sentences)
        else Estimate(None, reason="no translations"),
    }, counted_by


def _token_rate(
    recording: Recording, answers: Sequence[Request], ends: Sequence[float]
) -> tuple[Estimate, str | None]:
    counts = [r.output_tokens for r in answers if r.output_tokens is not None]
    if any(counts) and len(counts) == len(answers):
        return _rate(recording, ends, counts), BY_ANSWERS
    by_server = _server_tokens_per_second(recording)
    if by_server is None:
        return Estimate(None, reason="not every answer has its number of tokens"), None
    return Estimate(by_server), BY_SERVER


def _server_tokens_per_second(recording: Recording) -> float | None:
    """Return the rate of the server's counter between the samples nearest to the window's ends."""
    if not recording.server:
        return None
    window = recording.window
    before, after = (
        min(recording.server, key=lambda sample: abs(sample.time - time))
        for time in (window.opened, window.closed)
    )
    if before.time >= after.time:
        return None
    return (after.generated_tokens - before.generated_tokens) / (after.time - before.time)


def _rate(recording: Recording, times: Sequence[float], amounts: Sequence[float]) -> Estimate:
    """Estimate a rate. Means of ten slices of the window differ as the rate does by chance, even
    where neighbouring answers depend on each other (batch means, Law and Kelton).
    """
    window, seconds = recording.window, recording.seconds
    if seconds <= 0:
        return Estimate(None, reason="the window is empty")
    edges = np.linspace(window.opened, window.closed, BATCHES + 1)
    slices = np.histogram(times, edges, weights=amounts)[0] / (seconds / BATCHES)
    half = STUDENT_QUANTILE * float(np.std(slices, ddof=1)) / math.sqrt(BATCHES)
    value = sum(amounts) / seconds
    return Estimate(value, max(0.0, value - half), value + half)


Limits = Mapping[str, float]  # measure -> seconds


@dataclass(frozen=True, slots=True)
class Goodput:
    """Good requests: their rate per second and their share. broken: answers beyond each limit."""

    limits: Limits
    per_second: Estimate
    share: Estimate
    broken: dict[str, int]


def goodput(recording: Recording, limits: Limits) -> Goodput:
    requests = [r for r in recording.requests_in_window() if r.outcome != CANCELLED]
    answers = [request for request in requests if is_answer(request)]
    good = sum(all(keeps(r, *limit) for limit in limits.items()) for r in answers)
    share = proportion(good, len(requests))
    broken = {
        measure: sum(not keeps(r, measure, most) for r in answers)
        for measure, most in limits.items()
    }
    if recording.seconds <= 0 or not requests:
        return Goodput(limits, Estimate(None, reason="no requests"), share, broken)
    return Goodput(limits, share.scale(len(requests) / recording.seconds), share, broken)


def keeps(request: Request, measure: str, most: float) -> bool:
    """Return whether an answer keeps a limit.

    An answer without such a latency keeps it only if it was streamed: one text has no gaps.
    """
    values = MEASURES[measure].of(request)
    return max(values) <= most if values else bool(request.tokens)


@dataclass(frozen=True, slots=True)
class Series:
    """Figures of each slice of time. times: when a slice begins. Rates are per second; latencies
    are percentiles in seconds by when a request was due, NaN where none was.
    """

    width: float
    times: Floats
    offered: Floats
    answered: Floats
    failed: Floats
    in_flight: Floats
    latencies: dict[str, dict[float, Floats]]


def series(recording: Recording) -> Series:
    """Cut the whole run, with its warm-up, into slices of a second, or more in a long run."""
    requests = recording.requests
    end = max([recording.window.closed, *(request.end for request in requests)])
    width = float(max(1, math.ceil(end / MOST_SLICES)))
    edges = np.arange(max(1, math.ceil(end / width)) + 1, dtype=np.float64) * np.float64(width)
    begun, over, answered, failed = (
        np.histogram(np.array(times, dtype=np.float64), edges)[0]
        for times in (
            [r.intended for r in requests],
            [r.end for r in requests],
            [r.end for r in requests if is_answer(r)],
            [r.end for r in requests if is_failure(r)],
        )
    )
    return Series(
        width=width,
        times=edges[:-1],
        offered=begun / width,
        answered=answered / width,
        failed=failed / width,
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
    series = {percent: np.full(len(edges) - 1, np.nan) for percent in SHOWN_PERCENTS}
    for number in np.unique(slices):
        inside = seconds[slices == number]
        for percent in SHOWN_PERCENTS:
            series[percent][number] = np.percentile(inside, percent)
    return series

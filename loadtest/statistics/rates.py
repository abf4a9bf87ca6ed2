"""Counts what the server did in the window, per second, with intervals from batch means.

An answer counts when it ends inside the window, whenever it was asked for: so an overloaded server
is credited with what it answered, not with what was offered to it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.records import Recording, Request, counted
from loadtest.statistics.estimates import Estimate, proportion
from loadtest.statistics.measures import MEASURES, is_answer, is_meant_well

BATCHES = 10
STUDENT_QUANTILE = 2.262157  # 0.975, 9 degrees of freedom


def ended_inside(recording: Recording) -> list[Request]:
    """Return the requests of any outcome that ended inside the window."""
    window = recording.window
    return [r for r in recording.requests if window.opened < r.end <= window.closed]


def answered_inside(recording: Recording) -> list[Request]:
    return [request for request in ended_inside(recording) if is_answer(request)]


def offered_inside(recording: Recording) -> list[Request]:
    window = recording.window
    return [r for r in recording.requests if window.opened <= r.intended < window.closed]


def rates(recording: Recording) -> dict[str, Estimate]:
    """Return figures by name; what the answers do not tell is told as unknown."""
    answers = answered_inside(recording)
    ends = [request.end for request in answers]
    due = [request.intended for request in offered_inside(recording)]
    found = {
        "answers_per_second": _rate(recording, ends, [1] * len(ends)),
        "offered_per_second": _rate(recording, due, [1] * len(due)),
    }
    for name, amount in AMOUNTS.items():
        amounts = [value for request in answers if (value := amount(request)) is not None]
        found[f"{name}_per_second"] = (
            _rate(recording, ends, amounts)
            if any(amounts) and len(amounts) == len(answers)
            else Estimate(None, reason="not told by all answers")
        )
    return found


AMOUNTS: dict[str, Callable[[Request], int | None]] = {
    "tokens": lambda r: r.output_tokens,
    "prompt_tokens": lambda r: r.prompt_tokens,
    "sentences": lambda r: r.sentences,
    "words": lambda r: r.output_words,
    "characters": lambda r: r.output_characters,
}


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
    """Holds the limits in seconds, good requests per second, and their share of all."""

    limits: Limits
    per_second: Estimate
    share: Estimate
    broken: dict[str, int]  # measure -> answers that broke its limit


def goodput(recording: Recording, limits: Limits) -> Goodput:
    meant = [request for request in counted(recording) if is_meant_well(request)]
    good = sum(is_answer(r) and all(keeps(r, *limit) for limit in limits.items()) for r in meant)
    share = proportion(good, len(meant))
    broken = {
        measure: sum(is_answer(r) and not keeps(r, measure, most) for r in meant)
        for measure, most in limits.items()
    }
    if recording.seconds <= 0 or not meant:
        return Goodput(limits, Estimate(None, reason="no requests"), share, broken)
    return Goodput(limits, share.scaled(len(meant) / recording.seconds), share, broken)


def keeps(request: Request, measure: str, most: float) -> bool:
    """Tell whether a request keeps a limit. Where it has no such latency that is so if it was
    streamed, as a single text has no gaps, and not known, so not good, if it was not.
    """
    values = MEASURES[measure].of(request)
    return max(values) <= most if values else bool(request.tokens)

"""Computes the figures of a run from its timeline's raw timestamps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.timeline import OK, Exchange, Timeline

FROM_USAGE = "usage of the answers"
FROM_SERVER = "difference of the server's attendant_tokens_total"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Holds seconds; percentiles are linear interpolations between the nearest measurements."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Holds what a run showed, inside its window. None stands for what could not be measured."""

    seconds: float
    answers: int
    errors: dict[str, int]
    answers_per_second: float
    sentences_per_second: float | None
    tokens: float | None
    tokens_per_second: float | None
    tokens_counted_by: str | None
    latency_seconds: Distribution | None
    time_to_first_token_seconds: Distribution | None


def summarise(timeline: Timeline) -> Summary:
    answers = [e for e in timeline.measured if e.outcome == OK]
    errors = Counter(e.outcome for e in timeline.measured if e.outcome != OK)
    tokens, counted_by = _tokens(timeline, answers)
    return Summary(
        seconds=timeline.seconds,
        answers=len(answers),
        errors=dict(errors.most_common()),
        answers_per_second=len(answers) / timeline.seconds,
        sentences_per_second=sum(e.sentences for e in answers) / timeline.seconds or None,
        tokens=tokens,
        tokens_per_second=None if tokens is None else tokens / timeline.seconds,
        tokens_counted_by=counted_by,
        latency_seconds=distribution([e.end - e.start for e in answers]),
        time_to_first_token_seconds=distribution(
            [e.first_token - e.start for e in answers if e.first_token is not None]
        ),
    )


def distribution(seconds: Sequence[float]) -> Distribution | None:
    if not seconds:
        return None
    p50, p90, p95, p99 = np.percentile(seconds, [50, 90, 95, 99]).tolist()
    return Distribution(float(np.mean(seconds)), p50, p90, p95, p99, max(seconds))


def _tokens(timeline: Timeline, answers: list[Exchange]) -> tuple[float | None, str | None]:
    """Count the tokens generated in the window; return who counted them too.

    The answers' own usage comes first: it counts this run's requests only. A server's counter
    counts those of every client, and is exact only where there is no other.
    """
    counts = [e.tokens for e in answers if e.tokens is not None]
    if counts:
        return sum(counts), FROM_USAGE
    before, after = timeline.opened.server_tokens, timeline.closed.server_tokens
    if before is not None and after is not None:
        return after - before, FROM_SERVER
    return None, None

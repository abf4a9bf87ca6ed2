"""All figures of one run, computed from its recording."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from loadtest.records import CANCELLED, OK, Recording, Request
from loadtest.statistics.estimates import Distribution, Estimate, distribution, proportion
from loadtest.statistics.limits import Verdict, judge, objective_limits, request_limits
from loadtest.statistics.measures import MEASURES, is_answer, is_failure, samples_of
from loadtest.statistics.rates import Goodput, Limits, Series, goodput, rates, series

MOST_CPU = 0.85
MOST_LAG_MS = 5.0
MOST_LATENESS_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run.

    named: all that a limit may name, latencies in milliseconds. distributions: by measure, in
    seconds. outcomes: numbers of requests. tokens_counted_by: None if nobody counted tokens.
    warnings: what makes the figures doubtful, in sentences.
    """

    recording: Recording
    named: Mapping[str, Estimate]
    distributions: Mapping[str, Distribution]
    outcomes: Mapping[str, int]
    tokens_counted_by: str | None
    goodput: Goodput | None
    objective: list[Verdict]
    series: Series
    warnings: list[str]


def figures_of(
    recording: Recording, objective: Mapping[str, float] | None = None, limits: Limits | None = None
) -> Figures:
    """Compute all figures.

    objective: None is that of the run. limits: on each request, for goodput; None takes the bounds
    of the objective.
    """
    objective = recording.run.objective if objective is None else objective
    limits = limits or request_limits(objective or {})
    requests = recording.requests_in_window()
    distributions = {
        name: distribution(samples_of(requests, measure)) for name, measure in MEASURES.items()
    }
    speeds, tokens_counted_by = rates(recording)
    good = goodput(recording, limits) if limits else None
    named = {**_latencies(distributions), **speeds, **_counts(requests), **_goodput_figures(good)}
    return Figures(
        recording=recording,
        named=named,
        distributions=distributions,
        outcomes=Counter(request.outcome for request in requests),
        tokens_counted_by=tokens_counted_by,
        goodput=good,
        objective=judge(objective_limits(objective), named) if objective else [],
        series=series(recording),
        warnings=list(_warnings(recording)),
    )


def errors(figures: Figures) -> dict[str, int]:
    """Return failures by kind, most frequent first."""
    counts = Counter(figures.outcomes)
    return {kind: n for kind, n in counts.most_common() if kind not in (OK, CANCELLED)}


def _latencies(distributions: Mapping[str, Distribution]) -> dict[str, Estimate]:
    named = {}
    for measure, values in distributions.items():
        for percent, estimate in values.percentiles.items():
            named[f"p{percent:g}_{measure}_ms"] = estimate.scale(1000)
        named[f"mean_{measure}_ms"] = values.mean.scale(1000)
        named[f"max_{measure}_ms"] = values.maximum.scale(1000)
    return named


def _counts(requests: list[Request]) -> dict[str, Estimate]:
    failures = sum(map(is_failure, requests))
    not_cancelled = sum(request.outcome != CANCELLED for request in requests)
    return {
        "requests": Estimate(float(len(requests))),
        "answers": Estimate(float(sum(map(is_answer, requests)))),
        "errors": Estimate(float(failures)),
        "error_rate": proportion(failures, not_cancelled),
    }


def _goodput_figures(goodput: Goodput | None) -> dict[str, Estimate]:
    if goodput is None:
        unknown = Estimate(None, reason="no objective and no limits on requests were given")
        return {"goodput_per_second": unknown, "goodput_share": unknown}
    return {"goodput_per_second": goodput.per_second, "goodput_share": goodput.share}


def _warnings(recording: Recording) -> Iterator[str]:
    """Return whether the run was cut off, or the load generator was too busy to be trusted."""
    if not recording.is_complete:
        yield "The run was cut off; the figures are of what was recorded until then."
    samples = [s for s in recording.generator if recording.window.opened < s.time]
    cpu = max((sample.cpu for sample in samples), default=0.0)
    if cpu > MOST_CPU:
        yield f"The load generator used {cpu:.0%} of a core: it may be what was measured."
    lag = float(np.median([sample.lag_ms for sample in samples])) if samples else 0.0
    if lag > MOST_LAG_MS:
        yield f"The load generator's event loop was {lag:.1f} ms late (median): latencies have it."
    late = [request.sent - request.intended for request in recording.requests_in_window()]
    most = float(np.percentile(late, 99)) if late else 0.0
    if most > MOST_LATENESS_SECONDS:
        yield (
            f"1 % of the requests were sent {most * 1000:.0f} ms or more after they were due. "
            "Latencies count from when they were due."
        )

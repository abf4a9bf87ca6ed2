"""Computes everything that is said of one run from its recording alone."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from loadtest.records import CANCELLED, Recording, Request, counted
from loadtest.statistics.cautions import cautions
from loadtest.statistics.estimates import Distribution, Estimate, distribution, proportion
from loadtest.statistics.fairness import Fairness, fairness
from loadtest.statistics.limits import Verdict, judge, objective_limits, request_limits
from loadtest.statistics.measures import (
    MEASURES,
    is_answer,
    is_failure,
    is_meant_well,
    samples_of,
)
from loadtest.statistics.rates import Goodput, Limits, goodput, rates
from loadtest.statistics.series import Series, series
from loadtest.statistics.server import Comparison, compare_with_server, server_tokens_per_second

BY_ANSWERS = "usage of the answers"
BY_SERVER = "the server's metrics"


@dataclass(frozen=True, slots=True)
class Part:
    """Holds what was measured of the requests of one kind, model and protocol."""

    name: str
    answers: int
    failures: int
    distributions: dict[str, Distribution]


@dataclass(frozen=True, slots=True)
class Figures:
    """Holds the figures of a run. named: all that a limit may name, latencies in milliseconds.
    tokens_counted_by: None where nobody counted them.
    """

    recording: Recording
    named: Mapping[str, Estimate]
    distributions: Mapping[str, Distribution]  # by measure, in seconds
    outcomes: Mapping[str, int]  # of requests that count, by outcome
    refused_as_meant: int
    tokens_counted_by: str | None
    fairness: Fairness
    goodput: Goodput | None
    objective: list[Verdict]
    parts: list[Part]
    server: list[Comparison]
    series: Series
    cautions: list[str]


def figures_of(
    recording: Recording, objective: Mapping[str, float] | None = None, limits: Limits | None = None
) -> Figures:
    """Compute all figures. objective: by default the one that the run was made with. limits: on
    each request, for goodput; by default the bounds of the objective.
    """
    objective = recording.run.objective if objective is None else objective
    limits = limits or request_limits(objective or {})
    requests = counted(recording)
    found = {
        name: distribution(samples_of(requests, measure)) for name, measure in MEASURES.items()
    }
    speeds, tokens_counted_by = _speeds(recording)
    even, good = fairness(recording), goodput(recording, limits) if limits else None
    named = {
        **_latencies(found),
        **speeds,
        **_counts(requests),
        **_goodput_figures(good),
        **_fairness_figures(even),
    }
    return Figures(
        recording=recording,
        named=named,
        distributions=found,
        outcomes=Counter(r.outcome for r in requests if not r.is_expected_error),
        refused_as_meant=sum(request.is_expected_error for request in requests),
        tokens_counted_by=tokens_counted_by,
        fairness=even,
        goodput=good,
        objective=judge(objective_limits(objective), named) if objective else [],
        parts=breakdown(recording),
        server=compare_with_server(recording),
        series=series(recording),
        cautions=cautions(recording),
    )


def errors(figures: Figures) -> dict[str, int]:
    """Return failures by kind, most frequent first."""
    found = Counter(figures.outcomes)
    return {kind: n for kind, n in found.most_common() if kind not in ("ok", CANCELLED)}


def _latencies(found: Mapping[str, Distribution]) -> dict[str, Estimate]:
    named = {}
    for measure, values in found.items():
        for percent, estimate in values.percentiles.items():
            named[f"{measure}_p{percent:g}_ms"] = estimate.scaled(1000)
        named[f"{measure}_mean_ms"] = values.mean.scaled(1000)
        named[f"{measure}_min_ms"] = values.minimum.scaled(1000)
        named[f"{measure}_max_ms"] = values.maximum.scaled(1000)
    return named


def _speeds(recording: Recording) -> tuple[dict[str, Estimate], str | None]:
    """Return rates, and who counted tokens: the server, where answers do not say."""
    found = rates(recording)
    if found["tokens_per_second"].value is not None:
        return found, BY_ANSWERS
    by_server = server_tokens_per_second(recording)
    if by_server is None:
        return found, None
    return {**found, "tokens_per_second": Estimate(by_server)}, BY_SERVER


def _counts(requests: list[Request]) -> dict[str, Estimate]:
    failures, meant = sum(map(is_failure, requests)), sum(map(is_meant_well, requests))
    return {
        "requests": Estimate(float(len(requests))),
        "answers": Estimate(float(sum(map(is_answer, requests)))),
        "errors": Estimate(float(failures)),
        "error_rate": proportion(failures, meant),
    }


def _goodput_figures(found: Goodput | None) -> dict[str, Estimate]:
    if found is None:
        unknown = Estimate(None, reason="no objective and no limits on requests were given")
        return {"goodput_per_second": unknown, "goodput_share": unknown}
    return {"goodput_per_second": found.per_second, "goodput_share": found.share}


def _fairness_figures(found: Fairness) -> dict[str, Estimate]:
    worst = found.worst_user_end_to_end.scaled(1000)
    return {"fairness": found.index, "worst_user_e2e_p95_ms": worst}


COLUMNS = ("ttft", "tpot", "e2e")


def breakdown(recording: Recording) -> list[Part]:
    """Return the parts of a mix, largest first; nothing where all requests are of one sort."""
    groups: dict[tuple[str, ...], list[Request]] = defaultdict(list)
    for request in filter(is_meant_well, counted(recording)):
        groups[request.kind, request.protocol, request.model or "default model"].append(request)
    if len(groups) < 2:
        return []
    differs = [len(set(values)) > 1 for values in zip(*groups, strict=True)]
    parts = [
        _part(", ".join(v for v, does in zip(key, differs, strict=True) if does), requests)
        for key, requests in groups.items()
    ]
    return sorted(parts, key=lambda part: -part.answers)


def _part(name: str, requests: list[Request]) -> Part:
    return Part(
        name=name,
        answers=sum(map(is_answer, requests)),
        failures=sum(map(is_failure, requests)),
        distributions={
            measure: distribution(samples_of(requests, MEASURES[measure])) for measure in COLUMNS
        },
    )

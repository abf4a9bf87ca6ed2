"""Tells kinds of requests apart: a mix's percentiles are no single request's."""

from collections import defaultdict
from dataclasses import dataclass

from loadtest.records import Recording, Request, counted
from loadtest.statistics.estimates import Distribution, distribution
from loadtest.statistics.measures import MEASURES, is_answer, is_failure, is_meant_well, samples_of

COLUMNS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Part:
    """Holds what was measured of the requests of one kind, model and protocol."""

    name: str
    answers: int
    failures: int
    distributions: dict[str, Distribution]


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

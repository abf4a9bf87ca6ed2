"""Limits on figures and on single requests, as the options have them.

An objective is `p95_ttft_ms=200,p99_itl_ms=50`, an assertion `p95_ttft_ms<200`, a limit
on a request `ttft_ms=200`. Figures are named as in vLLM's benchmark.
"""

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from loadtest.statistics.estimates import PERCENTS, Estimate
from loadtest.statistics.measures import MEASURES

RELATIONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
ASSERTION = re.compile(r"\s*([\w.]+)\s*(<=|>=|<|>)\s*([-+.\w]+)\s*")
BEYOND = 5  # samples beyond a percentile that it takes to judge a load by it
MOST_ERRORS = 0.01  # the share that may fail if an objective does not say

LATENCY_FIGURES = (*(f"p{percent:g}" for percent in PERCENTS), "mean", "max")
RATE_FIGURES = (
    *("answers_per_second", "offered_per_second", "tokens_per_second"),
    *("sentences_per_second", "goodput_per_second", "goodput_share"),
)
OTHER_FIGURES = ("error_rate", "errors", "answers", "requests")
FIGURES = (
    *(f"{figure}_{measure}_ms" for measure in MEASURES for figure in LATENCY_FIGURES),
    *RATE_FIGURES,
    *OTHER_FIGURES,
)


@dataclass(frozen=True, slots=True)
class Limit:
    figure: str
    relation: str
    bound: float

    def __str__(self) -> str:
        return f"{self.figure} {self.relation} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A limit and the measured figure. An unknown figure does not meet a limit."""

    limit: Limit
    measured: Estimate

    @property
    def is_kept(self) -> bool:
        value = self.measured.value
        return value is not None and RELATIONS[self.limit.relation](value, self.limit.bound)


def judge(limits: Iterable[Limit], figures: Mapping[str, Estimate]) -> list[Verdict]:
    return [Verdict(limit, figures[limit.figure]) for limit in limits]


def parse_assertion(text: str) -> Limit:
    match = ASSERTION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not of the form p95_ttft_ms<200")
    name, relation, bound = match.groups()
    return Limit(known_figure(name), relation, _number(bound, text))


def parse_objective(text: str) -> dict[str, float]:
    """Return the bounds by the names of figures."""
    return {known_figure(name): bound for name, bound in _pairs(text)}


def objective_limits(objective: Mapping[str, float]) -> list[Limit]:
    """Return upper bounds for latencies and errors, and lower bounds for rates and shares.

    At most 1 % of the requests may fail if the objective does not say otherwise.
    """
    bounds = {"error_rate": MOST_ERRORS, **objective}
    return [
        Limit(name, ">=" if name in RATE_FIGURES else "<=", bound) for name, bound in bounds.items()
    ]


def parse_request_limits(text: str) -> dict[str, float]:
    """Return measures with bounds in seconds."""
    limits = {}
    for name, bound in _pairs(text):
        measure = name.removesuffix("_ms")
        if measure not in MEASURES or measure == name:
            names = ", ".join(f"{name_of_measure}_ms" for name_of_measure in MEASURES)
            raise ValueError(f"{name!r} is no limit on a request; those are {names}")
        limits[measure] = bound / 1000
    return limits


def request_limits(objective: Mapping[str, float]) -> dict[str, float]:
    """Return the bounds on percentiles in an objective as limits on a request, in seconds."""
    limits: dict[str, float] = {}
    for name, bound in objective.items():
        measure = name.removesuffix("_ms").rpartition("_")[2]
        if measure in MEASURES and name.endswith("_ms"):
            limits[measure] = max(bound / 1000, limits.get(measure, 0.0))
    return limits


def fewest_requests(objective: Mapping[str, float]) -> float:
    """Return how many requests it takes to judge the percentiles in an objective."""
    percents = [
        float(part[1:])
        for name in objective
        for part in name.split("_")
        if part in LATENCY_FIGURES and part.startswith("p") and not name.endswith("_itl_ms")
    ]
    return max((BEYOND / (1 - percent / 100) for percent in percents), default=0.0)


def known_figure(name: str) -> str:
    """Return the name of a figure. Raises ValueError, with the nearest one, if there is none."""
    if name in FIGURES:
        return name
    alike = {tuple(sorted(figure.split("_"))): figure for figure in FIGURES}
    reordered = alike.get(tuple(sorted(name.lower().split("_"))))
    near = [reordered] if reordered else get_close_matches(name, FIGURES, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"there is no figure {name!r}{hint}; {description_of_figures()}")


def description_of_figures() -> str:
    return (
        f"latencies are FIGURE_MEASURE_ms with {', '.join(LATENCY_FIGURES)} and "
        f"{', '.join(MEASURES)}; the others are {', '.join(RATE_FIGURES + OTHER_FIGURES)}"
    )


def _pairs(text: str) -> list[tuple[str, float]]:
    bounds = []
    for part in text.split(","):
        name, equals, bound = part.partition("=")
        if not equals:
            raise ValueError(f"{part.strip()!r} is not of the form p95_ttft_ms=200")
        bounds.append((name.strip(), _number(bound, part)))
    return bounds


def _number(bound: str, text: str) -> float:
    try:
        value = float(bound)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"{bound.strip()!r} in {text.strip()!r} is not a number from 0 on")
    return value

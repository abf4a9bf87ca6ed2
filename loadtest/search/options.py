"""Declares the options that make a command look for loads instead of running one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from loadtest.options import FiniteRange
from loadtest.records import CLOSED_LOOP
from loadtest.reporting.options import ReportOptions

STEADY = ("poisson", "constant", "gamma")
FIRST_RATE = 1.0


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Holds what to look for. sweep: loads to run, users or rates."""

    find_capacity: bool
    precision: float
    sweep: tuple[float, ...] | None

    @property
    def is_wanted(self) -> bool:
        return self.find_capacity or self.sweep is not None


class Loads(click.ParamType):
    """Takes numbers with commas between them."""

    name = "loads"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        try:
            loads = tuple(float(part) for part in value.split(","))
        except ValueError:
            loads = ()
        if not loads or not all(0 < load < float("inf") for load in loads):
            self.fail(f"{value!r} is not a list of loads such as 1,2,4,8", param, ctx)
        return tuple(sorted(set(loads)))


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Put the options on a command, which gets them as `search`."""

    @wraps(command)
    def with_search(**values: Any) -> Any:
        own = {name: values.pop(name) for name in SearchOptions.__slots__}
        return command(search=SearchOptions(**own), **values)

    for option in reversed(OPTIONS):
        with_search = option(with_search)
    return with_search


OPTIONS = (
    click.option(
        "--find-capacity",
        is_flag=True,
        help="Find the highest rate that meets --objective, beginning at --rate (1 a second).",
    ),
    click.option(
        "--precision",
        type=FiniteRange(0, 1, min_open=True),
        default=0.05,
        help="Gap that --find-capacity may leave, as a part of the rate.",
    ),
    click.option(
        "--sweep",
        type=Loads(),
        metavar="LOADS",
        help="Run one load after another, as 1,2,4,8: users, or rates with open --arrivals.",
    ),
)


def check(search: SearchOptions, report: ReportOptions, options: Mapping[str, Any]) -> str:
    """Return the kind of arrivals to search with. Raises click.UsageError for what does not fit."""
    if search.find_capacity and search.sweep:
        raise click.UsageError("--find-capacity and --sweep are two searches; choose one")
    if report.assertions:
        raise click.UsageError("--assert judges one run; a search has --objective")
    kind = options["arrivals"] or ("poisson" if search.find_capacity else CLOSED_LOOP)
    if search.find_capacity and not report.objective:
        raise click.UsageError('--find-capacity needs --objective, as "ttft_p95_ms=200"')
    known = STEADY if search.find_capacity else (CLOSED_LOOP, *STEADY)
    if kind not in known:
        raise click.UsageError(f"this search needs --arrivals of one load: {', '.join(known)}")
    if search.sweep and (options["rate"] or options["users"]):
        raise click.UsageError("--sweep names the loads; leave --rate and --users out")
    if kind == CLOSED_LOOP and any(load != int(load) for load in search.sweep or ()):
        raise click.UsageError("users are whole numbers; for rates add --arrivals poisson")
    return str(kind)

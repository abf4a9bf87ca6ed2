"""Declares what a user may ask of a report, for every command that makes one."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from loadtest.statistics.limits import (
    Limit,
    LimitError,
    description_of_figures,
    parse_assertion,
    parse_objective,
    parse_request_limits,
)

FILE = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Holds what a run is judged by, and where its report goes. request_limits: in seconds."""

    objective: Mapping[str, float] | None = None
    request_limits: Mapping[str, float] | None = None
    assertions: tuple[Limit, ...] = ()
    html: Path | None = None
    markdown: Path | None = None
    wants_json: bool = False


def refuse_bad_paths(options: ReportOptions, recordings: Iterable[Path]) -> None:
    """Raise UsageError where reports could not be written, or would take a recording's place."""
    taken = {path.resolve() for path in recordings}
    for name, path in (("--html", options.html), ("--markdown", options.markdown)):
        if path is None:
            continue
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise click.UsageError(f"{name}: nothing can be written into {path.parent}")
        if path.resolve() in taken:
            raise click.UsageError(f"{name}: {path} is for something else already")
        taken.add(path.resolve())


class Parsed(click.ParamType):
    """Takes what a function can parse."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except LimitError as error:
            self.fail(str(error), param, ctx)


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Put the options on a command, which gets them as `report`."""

    @wraps(command)
    def with_report(**values: Any) -> Any:
        own = {name: values.pop(name) for name in ReportOptions.__slots__}
        return command(report=ReportOptions(**own), **values)

    for option in reversed(OPTIONS):
        with_report = option(with_report)
    return with_report


OPTIONS = (
    click.option(
        "--objective",
        type=Parsed("limits", parse_objective),
        metavar="FIGURE=BOUND,...",
        help='What all requests together are to keep, as "ttft_p95_ms=200,itl_p99_ms=50"; at most '
        "1 % may fail unless error_rate=SHARE is in it.",
    ),
    click.option(
        "--goodput",
        "request_limits",
        type=Parsed("limits", parse_request_limits),
        metavar="MEASURE=BOUND,...",
        show_default="the bounds of the objective",
        help='What a single request is to keep to be good, as "ttft_ms=200,e2e_ms=1000".',
    ),
    click.option(
        "--assert",
        "assertions",
        type=Parsed("limit", parse_assertion),
        multiple=True,
        metavar="LIMIT",
        help='Exit with status 1 unless it holds, as "p95_ttft_ms<200"; may be given several '
        f"times. Figures: {description_of_figures()}.",
    ),
    click.option("--html", type=FILE, help="Write the report as a page with plots."),
    click.option("--markdown", type=FILE, help="Write the report as Markdown."),
    click.option("--json", "wants_json", is_flag=True, help="Report as JSON."),
)

"""The options of `attendant loadtest` and `attendant loadtest-report`."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from loadtest.plan import ARRIVALS, DEFAULT_SECONDS, DEFAULT_USERS, PROTOCOL_NAMES
from loadtest.statistics.limits import (
    Limit,
    description_of_figures,
    parse_assertion,
    parse_objective,
    parse_request_limits,
)

FILE = click.Path(path_type=Path, dir_okay=False)
LENGTHS = ("sentences", "short", "long", "mixed", "paragraphs")

Command = TypeVar("Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """Numbers within bounds. click's own range accepts nan, and inf without an upper bound."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


POSITIVE = FiniteRange(0, min_open=True)


class Parsed(click.ParamType):
    """Values that a function can parse; it raises ValueError for others."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_url(text: str) -> str:
    """Return an address such as http://127.0.0.1:8000, with a path if the server has one."""
    problem = ValueError(f"{text!r} is not an address such as http://127.0.0.1:8000")
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise problem from None
    if not is_good or parts.query or parts.fragment:
        raise problem
    return text.rstrip("/") + "/"


def parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not colon or "\n" in value:
        raise ValueError(f"{text!r} is not a header such as X-Team:research")
    return name, value.strip()


def parse_loads(text: str) -> tuple[float, ...]:
    try:
        loads = tuple(float(part) for part in text.split(","))
    except ValueError:
        loads = ()
    if not loads or not all(0 < load < float("inf") for load in loads):
        raise ValueError(f"{text!r} is not a list of loads such as 1,2,4,8")
    return tuple(sorted(set(loads)))


LOAD_OPTIONS = (
    click.option(
        "--arrivals",
        type=click.Choice(ARRIVALS),
        show_default="closed, or poisson with --rate",
        help="How requests arrive.",
    ),
    click.option(
        "--users",
        type=click.IntRange(1),
        show_default=f"{DEFAULT_USERS}",
        help="Requests in flight (closed).",
    ),
    click.option("--rate", type=POSITIVE, help="Requests a second (poisson, constant)."),
    click.option("--protocol", type=click.Choice(PROTOCOL_NAMES), default="translate"),
    click.option("--model", help="OpenAI's protocols need one."),
    click.option(
        "--input",
        type=FILE,
        show_default="built-in texts",
        help="Sentences or prompts, one a line.",
    ),
    click.option(
        "--lengths", type=click.Choice(LENGTHS), default="sentences", help="Built-in texts to use."
    ),
    click.option("--repeat", is_flag=True, help="Let texts come again, which caches may answer."),
    click.option(
        "--skip-texts",
        type=click.IntRange(0),
        default=0,
        help="Begin after so many texts, which an earlier run has used.",
    ),
    click.option("--seed", type=click.IntRange(0), default=0, help="Of arrivals and of texts."),
    click.option("--source", default="en", help="Language to translate from."),
    click.option("--target", default="fr", help="Language to translate into."),
    click.option(
        "--max-tokens",
        type=click.IntRange(1),
        show_default="(64; of translations, the server's own)",
        help="Length of outputs.",
    ),
    click.option(
        "--api-key",
        envvar="LOADTEST_API_KEY",
        show_envvar=True,
        help="A key for the server, sent as clients of the protocol send it.",
    ),
    click.option(
        "--header",
        "headers",
        type=Parsed("header", parse_header),
        multiple=True,
        metavar="NAME:VALUE",
        help="A header of every request; may be given several times.",
    ),
    click.option("--stream/--no-stream", default=True, help="Stream completions and chats."),
    click.option(
        "--duration", type=POSITIVE, default=DEFAULT_SECONDS, help="Seconds to measure for."
    ),
    click.option("--requests", type=click.IntRange(1), help="Measure so many requests at most."),
    click.option("--warm-up", type=FiniteRange(0), default=3.0, help="Seconds left out before."),
    click.option("--timeout", type=POSITIVE, default=60.0, help="Seconds a request may take."),
    click.option(
        "--record",
        type=FILE,
        show_default="a temporary file",
        help="Recording to write; a file of that name is replaced.",
    ),
)

SEARCH_OPTIONS = (
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
        type=Parsed("loads", parse_loads),
        metavar="LOADS",
        help="Run one load after another, as 1,2,4,8: users, or rates with open --arrivals.",
    ),
)

REPORT_OPTIONS = (
    click.option(
        "--objective",
        type=Parsed("limits", parse_objective),
        metavar="FIGURE=BOUND,...",
        help='What all requests together must keep, as "p95_ttft_ms=200,p99_itl_ms=50"; at most '
        "1 % may fail unless error_rate=SHARE is in it.",
    ),
    click.option(
        "--goodput",
        "request_limits",
        type=Parsed("limits", parse_request_limits),
        metavar="MEASURE=BOUND,...",
        show_default="the bounds of the objective",
        help='What a single request must keep to be good, as "ttft_ms=200,e2e_ms=1000".',
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


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """sweep: loads to run, users or rates. precision: gap that may be left, as a part."""

    find_capacity: bool
    precision: float
    sweep: tuple[float, ...] | None

    @property
    def is_wanted(self) -> bool:
        return self.find_capacity or self.sweep is not None


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The limits by which runs are judged, and the path of the report.

    request_limits: in seconds.
    """

    objective: Mapping[str, float] | None = None
    request_limits: Mapping[str, float] | None = None
    assertions: tuple[Limit, ...] = ()
    html: Path | None = None
    markdown: Path | None = None
    wants_json: bool = False

    def refuse_bad_paths(self, recordings: Iterable[Path]) -> None:
        """Raise UsageError if a report cannot be written, or would replace a recording."""
        paths = {path.resolve() for path in recordings}
        for name, path in (("--html", self.html), ("--markdown", self.markdown)):
            if path is None:
                continue
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise click.UsageError(f"{name}: nothing can be written into {path.parent}")
            if path.resolve() in paths:
                raise click.UsageError(f"{name}: {path} is for something else already")
            paths.add(path.resolve())


def load_options(command: Command) -> Command:
    for option in reversed(LOAD_OPTIONS):
        command = option(command)
    return command


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a search, as `search`."""
    return _group_options("search", SearchOptions, SEARCH_OPTIONS, command)


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a report, as `report`."""
    return _group_options("report", ReportOptions, REPORT_OPTIONS, command)


def _group_options(
    name: str,
    kind: type[SearchOptions] | type[ReportOptions],
    options: tuple[Any, ...],
    command: Callable[..., Any],
) -> Callable[..., Any]:
    @wraps(command)
    def with_groups(**values: Any) -> Any:
        fields = {option_name: values.pop(option_name) for option_name in kind.__slots__}
        return command(**{name: kind(**fields)}, **values)

    for option in reversed(options):
        with_groups = option(with_groups)
    return with_groups

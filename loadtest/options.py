"""Declares the options of the load test's command, by what they are about.

What they mean together is checked in planning.py.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from loadtest.plan import ARRIVALS
from loadtest.records import CLOSED_LOOP
from loadtest.reporting.options import ReportOptions

FILE = click.Path(path_type=Path, dir_okay=False)
PROTOCOL_NAMES = ("translate", "completions", "chat", "deepl")
LENGTHS = ("sentences", "short", "long", "mixed", "paragraphs")

Command = TypeVar("Command", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """Takes numbers within bounds. Of click's own, nan is within any, and inf has no bound."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


POSITIVE = FiniteRange(0, min_open=True)
PART = FiniteRange(0, 1, max_open=True)


class ServerUrl(click.ParamType):
    """Takes an address such as http://127.0.0.1:8000, with the path a server is mounted under."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parts = urlsplit(value)
            is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_good = False
        if not is_good or parts.query or parts.fragment:
            self.fail(f"{value!r} is not an address such as http://127.0.0.1:8000", param, ctx)
        return value.rstrip("/") + "/"


class WordRange(click.ParamType):
    """Takes numbers of words: 20, or 5-40."""

    name = "words"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        low, _, high = value.partition("-")
        try:
            words = int(low), int(high or low)
        except ValueError:
            words = (0, 0)
        if not 1 <= words[0] <= words[1]:
            self.fail(f"{value!r} is not a number of words such as 20 or 5-40", param, ctx)
        return words


def _declared(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Put options on a command, to be listed in this order."""

    def declare(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return declare


arrival_options = _declared(
    click.option(
        "--arrivals",
        type=click.Choice(ARRIVALS),
        show_default="closed, or poisson with --rate, or replay with --trace",
        help="How requests arrive.",
    ),
    click.option(
        "--users", type=click.IntRange(1), show_default="32", help="Requests in flight (closed)."
    ),
    click.option("--rate", type=POSITIVE, help="Requests a second (open loops)."),
    click.option("--to-rate", type=POSITIVE, help="Rate that a ramp or a step leads to."),
    click.option(
        "--burstiness",
        type=POSITIVE,
        help="Shape of the gamma distribution of gaps: 1 is Poisson, less is burstier.",
    ),
    click.option(
        "--trace", type=FILE, help="Recording, or JSON lines of time and text, to replay."
    ),
)

work_options = _declared(
    click.option(
        "--protocol",
        "protocols",
        type=click.Choice(PROTOCOL_NAMES),
        multiple=True,
        default=("translate",),
        help="May be given several times: then requests are spread over all.",
    ),
    click.option(
        "--model",
        "models",
        multiple=True,
        metavar="[PROTOCOL:]NAME",
        help="May be given several times, and for one protocol only. OpenAI's need one.",
    ),
    click.option(
        "--mix",
        metavar="KIND=SHARE,...",
        show_default="the server's own for translations, else greedy",
        help="Kinds of decoding: default, greedy, sampled, beam4 (any width).",
    ),
    click.option(
        "--input",
        type=FILE,
        show_default="built-in texts",
        help="Sentences or prompts, one a line.",
    ),
    click.option(
        "--lengths", type=click.Choice(LENGTHS), default="sentences", help="Built-in texts to use."
    ),
    click.option("--words", type=WordRange(), help="Use only texts of so many words, as 5-40."),
    click.option(
        "--prompt-words", type=WordRange(), help="Make prompts so long out of paragraphs."
    ),
    click.option(
        "--shared-prefix-words",
        type=click.IntRange(0),
        default=0,
        help="Words that prompts share at their beginning; a chat's system message.",
    ),
    click.option(
        "--prefixes", type=click.IntRange(1), default=4, help="How many such beginnings there are."
    ),
    click.option("--repeat", is_flag=True, help="Let texts come again, which caches may answer."),
    click.option(
        "--skip-texts",
        type=click.IntRange(0),
        default=0,
        help="Begin so many texts further on, where an earlier run has used those before.",
    ),
    click.option("--seed", type=click.IntRange(0), default=0, help="Of arrivals and of work."),
    click.option("--source", default="en", help="Language to translate from."),
    click.option("--target", default="fr", help="Language to translate into."),
    click.option(
        "--max-tokens",
        type=click.IntRange(1),
        show_default="(64; of translations, the server's own)",
        help="Length of outputs.",
    ),
    click.option("--stream/--no-stream", default=True, help="Stream completions and chats."),
    click.option("--disconnect", type=PART, default=0.0, help="Part of requests to hang up on."),
    click.option("--bad", type=PART, default=0.0, help="Part of requests that are broken."),
)

run_options = _declared(
    click.option(
        "--duration",
        type=POSITIVE,
        show_default="30, or the length of a trace",
        help="Seconds to measure for.",
    ),
    click.option("--requests", type=click.IntRange(1), help="Measure so many requests at most."),
    click.option("--warm-up", type=FiniteRange(0), default=3.0, help="Seconds left out before."),
    click.option("--timeout", type=POSITIVE, default=60.0, help="Seconds a request may take."),
    click.option(
        "--processes",
        type=click.IntRange(1),
        show_default="by load and processors",
        help="Processes that send.",
    ),
    click.option(
        "--calibrate",
        is_flag=True,
        help="First measure what the generator itself can do; without a URL, only that.",
    ),
    click.option(
        "--record",
        type=FILE,
        show_default="a temporary file",
        help="Recording to write, in the place of any that is there.",
    ),
    click.option("--record-texts", is_flag=True, help="Keep texts in it, for replays."),
)


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

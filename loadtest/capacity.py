"""The search for a server's capacity: runs at rising loads, with a rest between them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import click
from prometheus_client.parser import text_string_to_metric_families

from loadtest.errors import LoadTestError, SearchError
from loadtest.generator.run import live_line, run_plan
from loadtest.options import ReportOptions, SearchOptions
from loadtest.plan import Plan, plan_of
from loadtest.records import CLOSED_LOOP, Recording
from loadtest.statistics.figures import Figures, figures_of
from loadtest.statistics.limits import fewest_requests
from loadtest.statistics.loads import in_a_line, reasons_against

FIRST_RATE = 1.0
LOWEST_PART = 1 / 64  # of the first rate: no lower rate is tried
MOST_DOUBLINGS = 16

Carries = Callable[[float], bool]


def find_capacity(carries: Carries, first: float, precision: float) -> None:
    """Try one rate after another: double it until one is not carried, then halve the gap.

    precision: the gap that may be left, as a part of the rate. The caller keeps the answers.
    """
    bracket = _bracket(carries, first)
    if bracket is None:
        return
    low, high = bracket
    while high - low > precision * low:
        middle = _rounded((low + high) / 2)
        if not low < middle < high:
            return
        low, high = (middle, high) if carries(middle) else (low, middle)


def _bracket(carries: Carries, first: float) -> tuple[float, float] | None:
    """Return a rate that is carried and one that is not; None if there is no such pair."""
    if not carries(first):
        return _bracket_below(carries, first)
    low = first
    for _ in range(MOST_DOUBLINGS):
        if not carries(2 * low):
            return low, 2 * low
        low *= 2
    return None


def _bracket_below(carries: Carries, first: float) -> tuple[float, float] | None:
    high = first
    while high > first * LOWEST_PART:
        if carries(high / 2):
            return high / 2, high
        high /= 2
    return None


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


WORK = ("attendant_waiting", "attendant_rows", "vllm:num_requests_running")
PAUSE_WITHOUT_METRICS_SECONDS = 2.0
MOST_WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.5
TIMEOUT_SECONDS = 5.0


def wait_until_idle(url: str) -> bool:
    """Wait until the server has no work left, and return whether that happened in time.

    A server without such metrics gets a fixed pause.
    """
    end = time.monotonic() + MOST_WAIT_SECONDS
    while time.monotonic() < end:
        work = _work(url)
        if work is None:
            time.sleep(PAUSE_WITHOUT_METRICS_SECONDS)
            return True
        if not work:
            return True
        time.sleep(PAUSE_SECONDS)
    return False


def _work(url: str) -> float | None:
    """Return how many requests the server has, by its metrics; None if they do not say."""
    try:
        with urlopen(f"{url}metrics", timeout=TIMEOUT_SECONDS) as response:
            text = response.read().decode()
        families = [f for f in text_string_to_metric_families(text) if f.name in WORK]
    except (URLError, OSError, ValueError):
        return None
    return sum(s.value for family in families for s in family.samples) if families else None


MOST_STRETCH = 4.0  # of the window, at rates at which few requests come
CUT_SHORT = 0.9

Run = Callable[[Plan, Path], Recording]


def run_with_line(plan: Plan, path: Path) -> Recording:
    with live_line() as view:
        return run_plan(plan, path, view)


class Prober:
    """Measures loads. Each run gets new texts, and a server without work.

    kind: of arrivals. found: the figures of every run, in order.
    """

    def __init__(
        self,
        url: str,
        path: Path,
        kind: str,
        options: Mapping[str, Any],
        report: ReportOptions,
        run: Run,
    ) -> None:
        self._url, self._path, self._kind = url, path, kind
        self._options, self._report = options, report
        self._run = run
        self._num_texts = int(options["skip_texts"])
        self.found: list[Figures] = []

    def carries(self, load: float) -> bool:
        """Measure a load and return whether the server carried it."""
        if self.found and not wait_until_idle(self._url):
            raise SearchError("the server did not finish the requests of the run before")
        path = self._path.with_name(f"{self._path.stem}-{load:g}{self._path.suffix}")
        plan = self._plan(load)
        recording = self._run(plan, path)
        if recording.seconds < CUT_SHORT * plan.duration_seconds and plan.requests is None:
            raise SearchError(f"the search was interrupted at {load:g}")
        self._num_texts += len(recording.requests)
        figures = figures_of(recording, self._report.objective, self._report.request_limits)
        self.found.append(figures)
        click.echo(f"{in_a_line(figures)}; recording: {path}", err=True)
        return not reasons_against(figures)

    def _plan(self, load: float) -> Plan:
        """Return a run that is long enough for the percentiles in the objective."""
        is_closed_loop = self._kind == CLOSED_LOOP
        own = {"users": int(load)} if is_closed_loop else {"rate": load}
        options = {**self._options, "arrivals": self._kind, "skip_texts": self._num_texts, **own}
        plan = plan_of(self._url, options, self._report.objective)
        if is_closed_loop:
            return plan
        wanted = fewest_requests(self._report.objective or {}) / load
        longest = MOST_STRETCH * plan.duration_seconds
        return replace(plan, duration_seconds=max(plan.duration_seconds, min(wanted, longest)))


def run_search(
    url: str,
    path: Path,
    search: SearchOptions,
    report: ReportOptions,
    options: Mapping[str, Any],
    run: Run = run_with_line,
) -> tuple[list[Figures], LoadTestError | None]:
    """Return the figures of all measured loads, and the error that ended the search early.

    Raise that error if nothing was measured.
    """
    kind = kind_of_arrivals(search, report, options)
    prober = Prober(url, path, kind, options, report, run)
    try:
        if search.sweep is None:
            find_capacity(prober.carries, options["rate"] or FIRST_RATE, search.precision)
        for load in search.sweep or ():
            prober.carries(load)
    except LoadTestError as error:
        if not prober.found:
            raise
        return prober.found, error
    return prober.found, None


def kind_of_arrivals(
    search: SearchOptions, report: ReportOptions, options: Mapping[str, Any]
) -> str:
    """Return the kind of arrivals of a search. Raise UsageError if options do not fit together."""
    if search.find_capacity and search.sweep:
        raise click.UsageError("--find-capacity and --sweep are two searches; choose one")
    if report.assertions:
        raise click.UsageError("--assert judges one run; a search has --objective")
    kind = options["arrivals"] or ("poisson" if search.find_capacity else CLOSED_LOOP)
    if search.find_capacity and not report.objective:
        raise click.UsageError('--find-capacity needs --objective, as "ttft_p95_ms=200"')
    if search.find_capacity and kind == CLOSED_LOOP:
        raise click.UsageError("--find-capacity needs open --arrivals: poisson or constant")
    if search.sweep and (options["rate"] or options["users"]):
        raise click.UsageError("--sweep names the loads; leave --rate and --users out")
    if kind == CLOSED_LOOP and any(load != int(load) for load in search.sweep or ()):
        raise click.UsageError("users are whole numbers; for rates add --arrivals poisson")
    return str(kind)

"""The search for capacity: probes at rising rates, with a rest between them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import click
from prometheus_client.parser import text_string_to_metric_families

from loadtest.errors import LoadTestError
from loadtest.generator.live import live_line
from loadtest.generator.run import run_plan
from loadtest.options import FIRST_RATE, SearchOptions, check
from loadtest.plan import Plan
from loadtest.planning import plan_of
from loadtest.records import CLOSED_LOOP, Recording
from loadtest.reporting.options import ReportOptions
from loadtest.statistics.figures import Figures, figures_of
from loadtest.statistics.limits import fewest_requests
from loadtest.statistics.probes import in_a_line, reasons_against

LOWEST_PART = 1 / 64  # of the first rate; below it there is none
MOST_DOUBLINGS = 16

Carries = Callable[[float], bool]


def find_capacity(carries: Carries, first: float, precision: float) -> None:
    """Ask for one rate after another. precision: the gap that may be left, as a part of the rate.

    The answers are the caller's to keep: they are the evidence.
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
    """Return a rate that is carried and one that is not; None where there are no such two."""
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
BLIND_SECONDS = 2.0
MOST_SECONDS = 60.0
PAUSE_SECONDS = 0.5
TIMEOUT_SECONDS = 5.0


def wait_for_rest(url: str) -> bool:
    """Return whether the server came to rest; one that does not say gets a fixed pause."""
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        work = _work(url)
        if work is None:
            time.sleep(BLIND_SECONDS)
            return True
        if not work:
            return True
        time.sleep(PAUSE_SECONDS)
    return False


def _work(url: str) -> float | None:
    """Return how many requests the server has, by its metrics; None where those do not say."""
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


class SearchError(LoadTestError):
    """Says why a search ended before it was over."""


def run_with_line(plan: Plan, path: Path) -> Recording:
    with live_line() as view:
        return run_plan(plan, path, view)


class Prober:
    """Measures loads. Each run gets texts that none before it had, and a server at rest.

    found: the figures of every run, in order. kind: of arrivals.
    """

    def __init__(
        self,
        url: str,
        path: Path,
        kind: str,
        options: Mapping[str, Any],
        report: ReportOptions,
        run: Run = run_with_line,
    ) -> None:
        self._url, self._path, self._kind = url, path, kind
        self._options, self._report = options, report
        self._run = run
        self._num_texts = int(options["skip_texts"])
        self.found: list[Figures] = []

    def carries(self, load: float) -> bool:
        """Measure a load and tell whether the server carried it."""
        if self.found and not wait_for_rest(self._url):
            raise SearchError("the server did not finish what the run before had asked of it")
        path = self._path.with_name(f"{self._path.stem}-{load:g}{self._path.suffix}")
        plan = self._plan(load, path)
        recording = self._run(plan, path)
        if recording.seconds < CUT_SHORT * plan.duration_seconds and plan.requests is None:
            raise SearchError(f"the search was interrupted at {load:g}")
        self._num_texts += len(recording.requests)
        figures = figures_of(recording, self._report.objective, self._report.request_limits)
        self.found.append(figures)
        click.echo(f"{in_a_line(figures)}; recording: {path}", err=True)
        return not reasons_against(figures)

    def _plan(self, load: float, path: Path) -> Plan:
        """Plan a run long enough for the percentiles that the objective names."""
        options = {**self._options, "arrivals": self._kind, "skip_texts": self._num_texts}
        options["users" if self._kind == CLOSED_LOOP else "rate"] = (
            int(load) if self._kind == CLOSED_LOOP else load
        )
        plan = replace(
            plan_of(self._url, path, options, self._options["ceiling"]),
            objective=self._report.objective,
        )
        if plan.arrivals.is_closed_loop:
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
    """Return the figures of all loads that were measured, and what ended the search too early.

    Raises what ended it where there are no figures.
    """
    kind = check(search, report, options)
    prober = Prober(url, path, kind, options, report, run)
    try:
        _search(prober, search, options)
    except LoadTestError as error:
        if not prober.found:
            raise
        return prober.found, error
    return prober.found, None


def _search(prober: Prober, search: SearchOptions, options: Mapping[str, Any]) -> None:
    if search.sweep is None:
        find_capacity(prober.carries, options["rate"] or FIRST_RATE, search.precision)
        return
    for load in search.sweep:
        prober.carries(load)

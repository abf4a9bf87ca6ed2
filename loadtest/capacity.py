"""Search for the capacity of a server: measure one load after another, each on an idle server."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import click
from prometheus_client.parser import text_string_to_metric_families

from loadtest.generator.run import live_line, run_plan
from loadtest.options import ReportOptions, SearchOptions
from loadtest.plan import ArrivalPlan, LoadPlan, plan_of
from loadtest.records import CLOSED_LOOP, LoadTestError, Recording
from loadtest.statistics.figures import Figures, figures_of
from loadtest.statistics.limits import fewest_requests
from loadtest.statistics.loads import in_a_line, reasons_against

FIRST_RATE = 1.0
LOWEST_PART = 1 / 64  # of the first rate: no lower rate is tried
MOST_DOUBLINGS = 16

Carries = Callable[[float], bool]


def find_capacity(carries: Carries, first: float, precision: float) -> None:
    """Call `carries` with one rate after another: double until it returns False, then bisect.

    precision: the search ends when the gap is at most this part of the rate.
    """
    bracket = _bracket(carries, first)
    if bracket is None:
        return
    low, high = bracket
    while high - low > precision * low:
        middle = _round_rate((low + high) / 2)
        if not low < middle < high:
            return
        low, high = (middle, high) if carries(middle) else (low, middle)


def _bracket(carries: Carries, first: float) -> tuple[float, float] | None:
    """Return a rate that the server carries and a higher one that it does not, or None."""
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


def _round_rate(rate: float) -> float:
    return float(f"{rate:.3g}")


LOAD_METRICS = ("vllm:num_requests_waiting", "vllm:num_requests_running")
PAUSE_WITHOUT_METRICS_SECONDS = 2.0
MOST_WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.5
TIMEOUT_SECONDS = 5.0


def wait_until_idle(url: str) -> bool:
    """Wait until the server has no requests, and return whether that happened in time.

    If the server does not report these metrics, wait for a fixed time.
    """
    end = time.monotonic() + MOST_WAIT_SECONDS
    while time.monotonic() < end:
        num_requests = _num_requests(url)
        if num_requests is None:
            time.sleep(PAUSE_WITHOUT_METRICS_SECONDS)
            return True
        if not num_requests:
            return True
        time.sleep(PAUSE_SECONDS)
    return False


def _num_requests(url: str) -> float | None:
    """Return the number of requests in the server from its metrics; None if it reports none."""
    try:
        with urlopen(f"{url}metrics", timeout=TIMEOUT_SECONDS) as response:
            text = response.read().decode()
        families = [f for f in text_string_to_metric_families(text) if f.name in LOAD_METRICS]
    except (URLError, OSError, ValueError):
        return None
    return sum(s.value for family in families for s in family.samples) if families else None


MOST_STRETCH = 4.0  # of the window, at low rates
CUT_SHORT = 0.9

Run = Callable[[LoadPlan, Path], Recording]


def run_with_progress(plan: LoadPlan, path: Path) -> Recording:
    with live_line() as view:
        return run_plan(plan, path, view)


class Prober:
    """Measures loads. Each run sends new texts to an idle server.

    plan: of every run, except for its load. limits: on each request, see `figures_of`.
    found: the figures of every run, in order.
    """

    def __init__(
        self,
        plan: LoadPlan,
        path: Path,
        limits: Mapping[str, float] | None = None,
        run: Run = run_with_progress,
    ) -> None:
        self._plan, self._path, self._limits, self._run = plan, path, limits, run
        self._num_texts = plan.work.skipped_texts
        self.figures: list[Figures] = []

    def carries(self, load: float) -> bool:
        """Measure a load and return whether the server carried it."""
        if self.figures and not wait_until_idle(self._plan.url):
            raise LoadTestError("the server did not finish the requests of the previous run")
        path = self._path.with_name(f"{self._path.stem}-{load:g}{self._path.suffix}")
        plan = self._plan_of(load)
        recording = self._run(plan, path)
        if recording.seconds < CUT_SHORT * plan.duration_seconds and plan.requests is None:
            raise LoadTestError(f"the search was interrupted at {load:g}")
        self._num_texts += len(recording.requests)
        figures = figures_of(recording, limits=self._limits)
        self.figures.append(figures)
        click.echo(f"{in_a_line(figures)}; recording: {path}", err=True)
        return not reasons_against(figures)

    def _plan_of(self, load: float) -> LoadPlan:
        """Return the plan of a load, with enough time for the percentiles of the objective."""
        plan, kind = self._plan, self._plan.arrivals.kind
        work = replace(plan.work, skipped_texts=self._num_texts)
        if kind == CLOSED_LOOP:
            return replace(plan, work=work, arrivals=ArrivalPlan(users=int(load)))
        needed = fewest_requests(plan.objective or {}) / load
        longest = MOST_STRETCH * plan.duration_seconds
        seconds = max(plan.duration_seconds, min(needed, longest))
        arrivals = ArrivalPlan(kind=kind, rate=load)
        return replace(plan, work=work, arrivals=arrivals, duration_seconds=seconds)


def run_search(
    plan: LoadPlan, search: SearchOptions, prober: Prober
) -> tuple[list[Figures], LoadTestError | None]:
    """Return the figures of all measured loads, and the error that ended the search early.

    Raise that error if no load was measured.
    """
    try:
        if search.sweep is None:
            find_capacity(prober.carries, plan.arrivals.rate or FIRST_RATE, search.precision)
        for load in search.sweep or ():
            prober.carries(load)
    except LoadTestError as error:
        if not prober.figures:
            raise
        return prober.figures, error
    return prober.figures, None


def search_plan(
    url: str, search: SearchOptions, report: ReportOptions, options: Mapping[str, Any]
) -> LoadPlan:
    """Return the plan of a search. Raise UsageError if options do not fit together."""
    if search.find_capacity and search.sweep:
        raise click.UsageError("--find-capacity and --sweep are two searches; choose one")
    if report.assertions:
        raise click.UsageError("--assert judges one run; a search has --objective")
    kind = options["arrivals"] or ("poisson" if search.find_capacity else CLOSED_LOOP)
    if search.find_capacity and not report.objective:
        raise click.UsageError('--find-capacity needs --objective, as "p95_ttft_ms=200"')
    if search.find_capacity and kind == CLOSED_LOOP:
        raise click.UsageError("--find-capacity needs open --arrivals: poisson or constant")
    if search.sweep and (options["rate"] or options["users"]):
        raise click.UsageError("--sweep names the loads; leave --rate and --users out")
    if kind == CLOSED_LOOP and any(load != int(load) for load in search.sweep or ()):
        raise click.UsageError("users are whole numbers; for rates add --arrivals poisson")
    load = {} if kind == CLOSED_LOOP else {"rate": options["rate"] or FIRST_RATE}
    return plan_of(url, {**options, "arrivals": kind, **load}, report.objective)

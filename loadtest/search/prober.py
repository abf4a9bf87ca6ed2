"""Runs the same work under one load after another, and keeps what each showed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from loadtest.errors import LoadTestError
from loadtest.generator.live import live_line
from loadtest.generator.run import run_plan
from loadtest.plan import Plan
from loadtest.planning import plan_of
from loadtest.records import CLOSED_LOOP, Recording
from loadtest.reporting.options import ReportOptions
from loadtest.search.rest import wait_for_rest
from loadtest.statistics.figures import Figures, figures_of
from loadtest.statistics.limits import fewest_requests
from loadtest.statistics.probes import in_a_line, reasons_against

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

"""The reports of one run and of several loads, as documents and as JSON.

Names and meanings in the JSON do not change within a version.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from loadtest.options import ReportOptions
from loadtest.reporting.document import ReportDocument, as_markdown, as_text
from loadtest.reporting.loads_report import loads_report
from loadtest.reporting.page import as_page
from loadtest.reporting.run_report import run_report
from loadtest.statistics.figures import Figures, errors
from loadtest.statistics.limits import Verdict, judge
from loadtest.statistics.loads import capacity, load_unit, load_value, reasons_against

SCHEMA = "attendant-loadtest-report"
VERSION = 2
NOT_KEPT = 1  # exit status


@dataclass(frozen=True, slots=True)
class LoadReport:
    """is_kept: whether all assertions hold, or one load at least is within the objective."""

    document: ReportDocument
    content: Mapping[str, Any]
    is_kept: bool = True

    @property
    def json(self) -> str:
        head = {"schema": SCHEMA, "version": VERSION}
        return json.dumps({**head, **self.content}, indent=2, ensure_ascii=False, allow_nan=False)


def report_run(figures: Figures, options: ReportOptions) -> LoadReport:
    asserted = judge(options.assertions, figures.named)
    content = {"kind": "run", **_run(figures), "assertions": list(map(_verdict, asserted))}
    is_kept = all(verdict.is_kept for verdict in asserted)
    return LoadReport(run_report(figures, asserted), content, is_kept)


def report_loads(runs: Sequence[Figures]) -> LoadReport:
    ordered = sorted(runs, key=lambda figures: load_value(figures.recording.run))
    content: dict[str, Any] = {
        "kind": "loads",
        "unit": load_unit(ordered[0].recording.run),
        "runs": [
            {
                "load": load_value(report.recording.run),
                "reasons_against": reasons_against(report),
                **_run(report),
            }
            for report in ordered
        ],
    }
    if not ordered[0].objective:
        return LoadReport(loads_report(ordered), content)
    best = capacity(ordered)
    content["capacity"] = {
        "carried": best.carried and load_value(best.carried.recording.run),
        "not_carried": best.not_carried and load_value(best.not_carried.recording.run),
    }
    return LoadReport(loads_report(ordered), content, best.carried is not None)


def _run(figures: Figures) -> dict[str, Any]:
    recording, good = figures.recording, figures.goodput
    return {
        "run": asdict(recording.run),
        "window": {**asdict(recording.window), "is_complete": recording.is_complete},
        "figures": {name: estimate.as_json() for name, estimate in figures.named.items()},
        "samples": {name: estimate.count for name, estimate in figures.distributions.items()},
        "errors": errors(figures),
        "tokens_counted_by": figures.tokens_counted_by,
        "objective": list(map(_verdict, figures.objective)),
        "goodput_limits_ms": good and {name: 1000 * most for name, most in good.limits.items()},
        "series": _series(figures),
        "warnings": figures.warnings,
    }


def _series(figures: Figures) -> dict[str, Any]:
    series = figures.series
    names = ("times", "offered", "answered", "failed", "in_flight")
    latencies = {
        f"p{percent:g}_{name}_ms": [None if math.isnan(v) else v * 1000 for v in values.tolist()]
        for name, by_percent in series.latencies.items()
        for percent, values in by_percent.items()
    }
    rates = {name: getattr(series, name).tolist() for name in names}
    return {"width_seconds": series.width, **rates, **latencies}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    limit = asdict(verdict.limit)
    return {**limit, "measured": verdict.measured.as_json(), "is_kept": verdict.is_kept}


def deliver(report: LoadReport, options: ReportOptions) -> None:
    """Write the files that were asked for, and print the report."""
    for path, write in ((options.html, as_page), (options.markdown, as_markdown)):
        if path is not None:
            _write(path, write(report.document))
    click.echo(report.json if options.wants_json else as_text(report.document))


def exit_if_missed(report: LoadReport) -> None:
    """End the command with status 1 if an assertion failed, or no load was carried."""
    if not report.is_kept:
        raise click.exceptions.Exit(NOT_KEPT)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"the report could not be written: {error}") from error

"""Makes reports out of figures and takes them where a user wants them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from loadtest.reporting.comparison_report import comparison_report
from loadtest.reporting.document import Document
from loadtest.reporting.html_page import as_page
from loadtest.reporting.loads_report import loads_report
from loadtest.reporting.machine import comparison_json, loads_json, run_json
from loadtest.reporting.markdown import as_markdown
from loadtest.reporting.options import ReportOptions
from loadtest.reporting.run_report import run_report
from loadtest.reporting.text import as_text
from loadtest.statistics.figures import Figures
from loadtest.statistics.limits import judge
from loadtest.statistics.probes import capacity, load_value

NOT_KEPT = 1  # the exit status


@dataclass(frozen=True, slots=True)
class Report:
    """Holds a report for people and for programs. is_kept: what was to hold holds."""

    document: Document
    json: str
    is_kept: bool = True


def report_run(figures: Figures, options: ReportOptions) -> Report:
    asserted = judge(options.assertions, figures.named)
    is_kept = all(verdict.is_kept for verdict in asserted)
    return Report(run_report(figures, asserted), run_json(figures, asserted), is_kept)


def report_comparison(first: Figures, second: Figures, names: tuple[str, str]) -> Report:
    document = comparison_report(first, second, names)
    return Report(document, comparison_json(first, second, names))


def report_loads(runs: Sequence[Figures]) -> Report:
    """Report on loads. With an objective, one of them at least is to be carried."""
    ordered = sorted(runs, key=lambda figures: load_value(figures.recording.run))
    is_kept = not runs[0].objective or capacity(ordered).carried is not None
    return Report(loads_report(ordered), loads_json(ordered), is_kept)


def deliver(report: Report, options: ReportOptions) -> None:
    """Write the files asked for, and print the report."""
    for path, write in ((options.html, as_page), (options.markdown, as_markdown)):
        if path is not None:
            _write(path, write(report.document))
    click.echo(report.json if options.wants_json else as_text(report.document))


def exit_if_missed(report: Report) -> None:
    """End the command with status 1 where an assertion failed, or no load was carried."""
    if not report.is_kept:
        raise click.exceptions.Exit(NOT_KEPT)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"the report could not be written: {error}") from error

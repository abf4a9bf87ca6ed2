"""Holds `attendant loadtest URL`: reads options into a plan, has it run, and reports."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from time import strftime
from typing import Any

import click

from loadtest.errors import LoadTestError
from loadtest.options import (
    SearchOptions,
    ServerUrl,
    arrival_options,
    run_options,
    search_options,
    work_options,
)
from loadtest.plan import Plan
from loadtest.reporting.options import ReportOptions, refuse_bad_paths, report_options


class Failed(click.ClickException):
    """Says why there are no figures, or none of use."""

    exit_code = 2


@click.command(context_settings={"show_default": True})
@click.argument("url", metavar="URL", type=ServerUrl(), required=False)
@arrival_options
@work_options
@run_options
@search_options
@report_options
def loadtest(
    url: str | None,
    record: Path | None,
    calibrate: bool,
    search: SearchOptions,
    report: ReportOptions,
    **options: Any,
) -> None:
    """Load the server at URL, write down what happens to every request, and report.

    A closed loop (--users) shows throughput: each user asks again once answered. Open loops
    (--rate) show how requests wait at a pace that does not wait for the server; there latency
    counts from when a request was due, however late it could be sent.

    Ctrl-C ends a run in order; what was measured until then is reported.
    """
    from loadtest.planning import plan_of

    if url is None and not calibrate:
        raise click.UsageError("Missing argument 'URL'.")
    path = record or temporary_recording()
    refuse_bad_paths(report, [path])
    try:
        ceiling = _calibrated() if calibrate else None
        if url is None:
            return
        if search.is_wanted:
            _search(url, path, search, report, {**options, "ceiling": ceiling})
        else:
            plan = plan_of(url, path, options, ceiling)
            _run(replace(plan, objective=report.objective), path, report)
    except (LoadTestError, OSError) as error:
        raise Failed(str(error)) from error


def temporary_recording() -> Path:
    """Return where to record by default: two runs begun in one second must not share a file."""
    begun = strftime("attendant-loadtest-%Y%m%d-%H%M%S")
    return Path(gettempdir()) / f"{begun}-{os.getpid()}.jsonl"


def _run(plan: Plan, path: Path, options: ReportOptions) -> None:
    from loadtest.generator.live import live_line
    from loadtest.generator.run import run_plan
    from loadtest.records import OK, counted
    from loadtest.reporting.delivery import deliver, exit_if_missed, report_run
    from loadtest.statistics.figures import figures_of

    with live_line() as view:
        recording = run_plan(plan, path, view)
    click.echo(f"recording: {path}", err=True)
    report = report_run(figures_of(recording, limits=options.request_limits), options)
    deliver(report, options)
    if not any(request.outcome == OK for request in counted(recording)):
        raise LoadTestError("no request was answered as it should be")
    exit_if_missed(report)


def _search(
    url: str,
    path: Path,
    search: SearchOptions,
    report: ReportOptions,
    options: Mapping[str, Any],
) -> None:
    from loadtest.capacity import run_search
    from loadtest.reporting.delivery import deliver, exit_if_missed, report_loads

    found, problem = run_search(url, path, search, report, options)
    made = report_loads(found)
    deliver(made, report)
    if problem is not None:
        raise LoadTestError(f"{problem}; the report is of what was measured before")
    exit_if_missed(made)


def _calibrated() -> float:
    """Measure what one process can do, say it, and return its requests a second."""
    from loadtest.generator.ceiling import measure_ceiling

    ceiling = measure_ceiling()
    click.echo(
        f"one process of the generator sends {ceiling.requests_per_second:.0f} requests/s, or"
        f" reads {ceiling.chunks_per_second:.0f} streamed chunks/s, for each second that it has"
        " a processor",
        err=True,
    )
    return ceiling.requests_per_second

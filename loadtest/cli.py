"""Holds `attendant loadtest URL`: reads options into a plan, has it run, and reports."""

from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from time import strftime
from typing import Any

import click

from loadtest.errors import LoadTestError
from loadtest.options import ServerUrl, arrival_options, run_options, work_options
from loadtest.reporting.options import ReportOptions, report_options
from loadtest.search.options import SearchOptions, search_options


class Failed(click.ClickException):
    """Says why there are no figures, or none of use."""

    exit_code = 2


@click.command(context_settings={"show_default": True})
@click.argument("url", type=ServerUrl())
@arrival_options
@work_options
@run_options
@search_options
@report_options
def loadtest(
    url: str,
    record: Path | None,
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
    path = record or Path(gettempdir()) / strftime("attendant-loadtest-%Y%m%d-%H%M%S.jsonl")
    if search.is_wanted:
        _search(url, path, search, report, options)
    else:
        _run(url, path, report, options)


def _run(url: str, path: Path, report: ReportOptions, options: dict[str, Any]) -> None:
    from loadtest.generator.live import live_line
    from loadtest.generator.run import run_plan
    from loadtest.planning import plan_of
    from loadtest.records import OK, counted
    from loadtest.reporting.delivery import deliver, report_run
    from loadtest.statistics.figures import figures_of

    try:
        plan = replace(plan_of(url, path, options), objective=report.objective)
        with live_line() as view:
            recording = run_plan(plan, path, view)
    except (LoadTestError, OSError) as error:
        raise Failed(str(error)) from error
    click.echo(f"recording: {path}", err=True)
    deliver(report_run(figures_of(recording, limits=report.request_limits), report), report)
    if not any(request.outcome == OK for request in counted(recording)):
        raise Failed("no request was answered as it should be")


def _search(
    url: str, path: Path, search: SearchOptions, report: ReportOptions, options: dict[str, Any]
) -> None:
    from loadtest.reporting.delivery import deliver, report_loads
    from loadtest.search.running import run_search

    try:
        found, problem = run_search(url, path, search, report, options)
    except (LoadTestError, OSError) as error:
        raise Failed(str(error)) from error
    deliver(report_loads(found), report)
    if problem is not None:
        raise Failed(f"{problem}; the report is of what was measured before")

"""`attendant loadtest`, which runs load tests, and `attendant loadtest-report`."""

import os
from pathlib import Path
from tempfile import gettempdir
from time import strftime
from typing import Any

import click

from loadtest.options import (
    Parsed,
    ReportOptions,
    SearchOptions,
    load_options,
    parse_url,
    report_options,
    search_options,
)
from loadtest.plan import plan_of
from loadtest.records import LoadTestError

RECORDING = click.Path(path_type=Path, dir_okay=False, exists=True)


class Failed(click.ClickException):
    exit_code = 2


@click.command(context_settings={"show_default": True})
@click.argument("url", metavar="URL", type=Parsed("url", parse_url))
@load_options
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

    \b
    Examples:
      attendant loadtest http://127.0.0.1:8000
      attendant loadtest http://127.0.0.1:8000 --rate 20 --record rate-20.jsonl --html report.html
      attendant loadtest http://127.0.0.1:8000 --protocol completions --model llama-en --users 4
    """
    path = record or temporary_recording()
    report.refuse_bad_paths([path])
    try:
        if search.is_wanted:
            _search(url, path, search, report, options)
        else:
            _run(url, path, report, options)
    except (LoadTestError, OSError) as error:
        raise Failed(str(error)) from error


def temporary_recording() -> Path:
    """Return where to record by default: two runs begun in one second must not share a file."""
    begun = strftime("attendant-loadtest-%Y%m%d-%H%M%S")
    return Path(gettempdir()) / f"{begun}-{os.getpid()}.jsonl"


def _run(url: str, path: Path, report: ReportOptions, options: dict[str, Any]) -> None:
    from loadtest.generator.run import live_line, run_plan
    from loadtest.records import OK
    from loadtest.reporting.reports import deliver, exit_if_missed, report_run
    from loadtest.statistics.figures import figures_of

    with live_line() as view:
        recording = run_plan(plan_of(url, options, report.objective), path, view)
    click.echo(f"recording: {path}", err=True)
    text = report_run(figures_of(recording, limits=report.request_limits), report)
    deliver(text, report)
    if not any(request.outcome == OK for request in recording.requests_in_window()):
        raise LoadTestError("no request was answered as it should be")
    exit_if_missed(text)


def _search(
    url: str, path: Path, search: SearchOptions, report: ReportOptions, options: dict[str, Any]
) -> None:
    from loadtest.capacity import Prober, run_search, search_plan
    from loadtest.reporting.reports import deliver, exit_if_missed, report_loads

    plan = search_plan(url, search, report, options)
    runs, problem = run_search(plan, search, Prober(plan, path, report.request_limits))
    text = report_loads(runs)
    deliver(text, report)
    if problem is not None:
        raise LoadTestError(f"{problem}; the report is of what was measured before")
    exit_if_missed(text)


@click.command("loadtest-report", context_settings={"show_default": True})
@click.argument("recordings", metavar="RUN...", type=RECORDING, nargs=-1, required=True)
@report_options
def loadtest_report(recordings: tuple[Path, ...], report: ReportOptions) -> None:
    """Report on recordings of `attendant loadtest`: of one run, or of the same work under several
    loads as one curve.

    \b
    Examples:
      attendant loadtest-report run.jsonl --assert 'p95_e2e_ms<1000'
      attendant loadtest-report before.jsonl after.jsonl --html compared.html
    """
    from loadtest.records import read_recording
    from loadtest.reporting.reports import (
        deliver,
        exit_if_missed,
        report_loads,
        report_run,
    )
    from loadtest.statistics.figures import figures_of
    from loadtest.statistics.loads import load_unit

    report.refuse_bad_paths(recordings)
    if report.assertions and len(recordings) > 1:
        raise click.UsageError("--assert judges one run; give one recording")
    try:
        recordings_read = [read_recording(path) for path in recordings]
    except (LoadTestError, OSError) as error:
        raise click.ClickException(str(error)) from error
    figures = [
        figures_of(recording, report.objective, report.request_limits)
        for recording in recordings_read
    ]
    if len(figures) == 1:
        text = report_run(figures[0], report)
    elif len({load_unit(recording.run) for recording in recordings_read}) > 1:
        raise click.UsageError("some recordings are of users and some of rates; no curve has both")
    else:
        text = report_loads(figures)
    deliver(text, report)
    exit_if_missed(text)

"""Holds `attendant loadtest URL`: reads options into a plan, has it run, and reports."""

from pathlib import Path
from tempfile import gettempdir
from time import strftime
from typing import Any

import click

from loadtest.errors import LoadTestError
from loadtest.options import ServerUrl, arrival_options, run_options, work_options


class Failed(click.ClickException):
    """Says why there are no figures, or none of use."""

    exit_code = 2


@click.command(context_settings={"show_default": True})
@click.argument("url", type=ServerUrl())
@arrival_options
@work_options
@run_options
def loadtest(url: str, record: Path | None, **options: Any) -> None:
    """Load the server at URL, write down what happens to every request, and report.

    A closed loop (--users) shows throughput: each user asks again once answered. Open loops
    (--rate) show how requests wait at a pace that does not wait for the server; there latency
    counts from when a request was due, however late it could be sent.

    Ctrl-C ends a run in order; what was measured until then is reported.
    """
    from loadtest.generator.live import live_line
    from loadtest.generator.run import run_plan
    from loadtest.planning import plan_of
    from loadtest.records import OK, counted
    from loadtest.summary import as_text

    path = record or Path(gettempdir()) / strftime("attendant-loadtest-%Y%m%d-%H%M%S.jsonl")
    try:
        with live_line() as view:
            recording = run_plan(plan_of(url, path, options), path, view)
    except (LoadTestError, OSError) as error:
        raise Failed(str(error)) from error
    click.echo(f"recording: {path}", err=True)
    click.echo(as_text(recording))
    if not any(request.outcome == OK for request in counted(recording)):
        raise Failed("no request was answered as it should be")

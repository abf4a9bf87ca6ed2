"""Holds `attendant loadtest-report`, which makes reports of recordings long after their runs."""

from pathlib import Path

import click

from loadtest.reporting.options import ReportOptions, report_options

RECORDING = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("loadtest-report", context_settings={"show_default": True})
@click.argument("recordings", metavar="RUN...", type=RECORDING, nargs=-1, required=True)
@click.option(
    "--sweep", is_flag=True, help="Report on two recordings as on more: as rising load, no rivals."
)
@report_options
def loadtest_report(recordings: tuple[Path, ...], sweep: bool, report: ReportOptions) -> None:
    """Report on recordings of `attendant loadtest`: one alone, two compared with each other, or the
    same work under more loads than two, as one curve.
    """
    from loadtest.records import RecordingError, read_recording
    from loadtest.reporting.delivery import deliver, report_comparison, report_loads, report_run
    from loadtest.statistics.figures import figures_of
    from loadtest.statistics.probes import are_of_one_sort

    if report.assertions and len(recordings) > 1:
        raise click.UsageError("--assert judges one run; give one recording")
    try:
        found = [read_recording(path) for path in recordings]
    except (RecordingError, OSError) as error:
        raise click.ClickException(str(error)) from error
    figures = [figures_of(each, report.objective, report.request_limits) for each in found]
    if len(found) == 1:
        deliver(report_run(figures[0], report), report)
    elif len(found) == 2 and not sweep:
        first, second = names_of(recordings)
        deliver(report_comparison(figures[0], figures[1], (first, second)), report)
    elif not are_of_one_sort(found):
        raise click.UsageError("some recordings are of users and some of rates; no curve has both")
    else:
        deliver(report_loads(figures), report)


def names_of(paths: tuple[Path, ...]) -> list[str]:
    """Name recordings by their files, and by more of their paths where those are alike."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]

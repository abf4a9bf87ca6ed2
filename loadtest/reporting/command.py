"""Holds `attendant loadtest-report`, which makes reports of recordings long after their runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadtest.reporting.options import ReportOptions, refuse_bad_paths, report_options

if TYPE_CHECKING:
    from loadtest.reporting.delivery import Report
    from loadtest.statistics.figures import Figures

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
    from loadtest.errors import RecordingError
    from loadtest.records import read_recording
    from loadtest.reporting.delivery import deliver, exit_if_missed
    from loadtest.statistics.figures import figures_of

    refuse_bad_paths(report, recordings)
    if report.assertions and len(recordings) > 1:
        raise click.UsageError("--assert judges one run; give one recording")
    try:
        found = [read_recording(path) for path in recordings]
    except (RecordingError, OSError) as error:
        raise click.ClickException(str(error)) from error
    figures = [figures_of(each, report.objective, report.request_limits) for each in found]
    made = _report(recordings, figures, sweep, report)
    deliver(made, report)
    exit_if_missed(made)


def _report(
    paths: tuple[Path, ...], figures: "list[Figures]", sweep: bool, options: ReportOptions
) -> "Report":
    from loadtest.reporting.delivery import report_comparison, report_loads, report_run
    from loadtest.statistics.probes import are_of_one_sort

    if len(figures) == 1:
        return report_run(figures[0], options)
    if len(figures) == 2 and not sweep:
        first, second = names_of(paths)
        return report_comparison(figures[0], figures[1], (first, second))
    if not are_of_one_sort([each.recording for each in figures]):
        raise click.UsageError("some recordings are of users and some of rates; no curve has both")
    return report_loads(figures)


def names_of(paths: tuple[Path, ...]) -> list[str]:
    """Name recordings by their files, and by more of their paths where those are alike."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]

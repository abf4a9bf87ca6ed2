"""Runs a search from its options, and keeps what it found even where it could not end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.errors import LoadTestError
from loadtest.reporting.options import ReportOptions
from loadtest.search.capacity import find_capacity
from loadtest.search.options import FIRST_RATE, SearchOptions, check
from loadtest.search.prober import Prober, Run, run_with_line
from loadtest.statistics.figures import Figures


def run_search(
    url: str,
    path: Path,
    search: SearchOptions,
    report: ReportOptions,
    options: Mapping[str, Any],
    run: Run = run_with_line,
) -> tuple[list[Figures], LoadTestError | None]:
    """Return the figures of all loads that were measured, and what ended the search too early.

    Raises what ended it where there are no figures.
    """
    kind = check(search, report, options)
    prober = Prober(url, path, kind, options, report, run)
    try:
        _search(prober, search, options)
    except LoadTestError as error:
        if not prober.found:
            raise
        return prober.found, error
    return prober.found, None


def _search(prober: Prober, search: SearchOptions, options: Mapping[str, Any]) -> None:
    if search.sweep is None:
        find_capacity(prober.carries, options["rate"] or FIRST_RATE, search.precision)
        return
    for load in search.sweep:
        prober.carries(load)

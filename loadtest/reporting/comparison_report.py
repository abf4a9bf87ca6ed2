"""Decides what is said of two runs side by side."""

from collections.abc import Mapping
from typing import Any

from loadtest.records import Run
from loadtest.reporting.document import QUIET, Cell, Document, Notes, Section, Table
from loadtest.reporting.numbers import UNKNOWN, change, figure, interval, number, percent
from loadtest.reporting.plots import Axis, Curve, Plot, logarithmic
from loadtest.reporting.run_plots import FEWEST, cumulative, milliseconds
from loadtest.reporting.run_report import definitions, how_it_was_made, load_of, settings
from loadtest.statistics.comparison import Difference, differences, in_words
from loadtest.statistics.estimates import Estimate
from loadtest.statistics.figures import Figures
from loadtest.statistics.limits import RATE_FIGURES
from loadtest.statistics.measures import MEASURES

ROLES = ("first", "second")
CAVEAT = (
    "The tests take requests as independent, and each load as one run. What else changes from one "
    "run to the next, only repeated runs show."
)
SHOWN = ("p50", "p90", "p95", "p99", "p99.9")
MEASURED = ("ttft", "itl", "tpot", "e2e")


def comparison_report(first: Figures, second: Figures, names: tuple[str, str]) -> Document:
    found = differences(first, second)
    sentences = [in_words(each, names) for each in found] or [
        "There are too few answers to compare."
    ]
    runs = (first.recording.run, second.recording.run)
    return Document(
        title=f"{names[1]} against {names[0]}",
        subtitle=" · ".join(f"{n}: {load_of(r)}" for n, r in zip(names, runs, strict=True)),
        sections=[
            Section("Summary", [*_warnings(first, second, names), Notes([*sentences, CAVEAT])]),
            Section("Medians", [_medians(found, names)] if found else []),
            Section(
                "Percentiles", [_percentiles(first, second, names), *_plots(first, second, names)]
            ),
            Section("Throughput", [_rates(first, second, names)]),
            Section("What was asked differently", [_settings(runs, names)]),
            *_made(first, second, names),
            Section("Definitions", [Notes(definitions())], is_brief=False),
        ],
    )


def _warnings(first: Figures, second: Figures, names: tuple[str, str]) -> list[Notes]:
    lines = [
        f"{name}: {caution}"
        for name, figures in zip(names, (first, second), strict=True)
        for caution in figures.cautions
    ]
    return [Notes(lines, is_warning=True)] if lines else []


def _medians(found: list[Difference], names: tuple[str, str]) -> Table:
    header = ["milliseconds", *names, "ratio", "longer in", "p", "verdict"]
    return Table(header, [_median_row(each) for each in found], "Ratio: the second over the first.")


def _median_row(found: Difference) -> list[Cell]:
    return [
        Cell(f"{MEASURES[found.measure].title}, p50"),
        *(Cell(number(median * 1000)) for median in found.medians),
        Cell(figure(found.ratio), interval(found.ratio)),
        Cell(percent(found.slower)),
        Cell("< 0.0001" if found.p < 1e-4 else f"{found.p:.2g}"),
        Cell("differs" if found.is_significant else "no difference shown"),
    ]


def _percentiles(first: Figures, second: Figures, names: tuple[str, str]) -> Table:
    rows = [
        row
        for measure in MEASURED
        if first.distributions[measure].count and second.distributions[measure].count
        for row in _percentile_rows(measure, first, second, names)
    ]
    return Table(["milliseconds", *SHOWN], rows)


def _percentile_rows(
    measure: str, first: Figures, second: Figures, names: tuple[str, str]
) -> list[list[Cell]]:
    """Return a row for each run, and one with the change from the first to the second."""
    keys = [f"{measure}_{percentile}_ms" for percentile in SHOWN]
    rows = [
        [Cell(f"{MEASURES[measure].title}, {name}"), *(_measured(figures.named[k]) for k in keys)]
        for name, figures in zip(names, (first, second), strict=True)
    ]
    changes = [Cell(_change(first.named[key], second.named[key])) for key in keys]
    return [*rows, [Cell("change", tone=QUIET), *changes]]


def _measured(found: Estimate) -> Cell:
    return Cell(figure(found), interval(found))


def _change(first: Estimate, second: Estimate) -> str:
    return change(second.value / first.value - 1) if first.value and second.value else UNKNOWN


def _rates(first: Figures, second: Figures, names: tuple[str, str]) -> Table:
    rows = [
        _beside(name.replace("_per_second", "/s").replace("_", " "), name, first, second)
        for name in (*RATE_FIGURES, "error_rate", "requests")
        if first.named[name].value is not None or second.named[name].value is not None
    ]
    return Table(["", *names, "change"], rows)


def _beside(title: str, key: str, first: Figures, second: Figures) -> list[Cell]:
    a, b = first.named[key], second.named[key]
    return [Cell(title), _measured(a), _measured(b), Cell(_change(a, b))]


def _settings(runs: tuple[Run, Run], names: tuple[str, str]) -> Table | Notes:
    rows = []
    for part in ("url", "arrivals", "work", "settings", "objective", "generator"):
        first, second = (_flat(part, getattr(run, part)) for run in runs)
        for key in dict.fromkeys([*first, *second]):
            if first.get(key) != second.get(key):
                cells = (
                    Cell(settings({"": each.get(key, UNKNOWN)}).strip()) for each in (first, second)
                )
                rows.append([Cell(key), *cells])
    return (
        Table(["", *names], rows) if rows else Notes(["Both runs were asked for in the same way."])
    )


def _flat(name: str, found: Any) -> dict[str, Any]:
    if isinstance(found, Mapping):
        return {f"{name}: {key}": value for key, value in found.items()}
    return {name: found}


def _made(first: Figures, second: Figures, names: tuple[str, str]) -> list[Section]:
    return [
        Section(
            f"How {name} was measured", [Notes(how_it_was_made(figures.recording))], is_brief=False
        )
        for name, figures in zip(names, (first, second), strict=True)
    ]


def _plots(first: Figures, second: Figures, names: tuple[str, str]) -> list[Plot]:
    plots = []
    for name in ("ttft", "itl", "e2e"):
        both = [milliseconds(figures, name) for figures in (first, second)]
        if min(map(len, both)) >= FEWEST:
            curves = [
                cumulative(title, each, role)
                for title, each, role in zip(names, both, ROLES, strict=True)
            ]
            plots.append(_overlay(name, curves))
    return plots


def _overlay(name: str, curves: list[Curve]) -> Plot:
    low = min(float(curve.x[0]) for curve in curves)
    high = max(float(curve.x[-1]) for curve in curves)
    return Plot(
        title=MEASURES[name].title.capitalize(),
        caption="How many took at most so long; the curve further to the left is the faster run.",
        x=logarithmic("milliseconds", low, high),
        y=Axis("percent", 0, 100),
        curves=curves,
    )

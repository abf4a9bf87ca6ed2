"""The report of two runs side by side."""

from collections.abc import Mapping
from typing import Any

from loadtest.records import Run
from loadtest.reporting.document import QUIET, Cell, Document, Notes, Section, Table, measured
from loadtest.reporting.numbers import UNKNOWN, change, number
from loadtest.reporting.plots import Axis, Plot, logarithmic
from loadtest.reporting.run_report import (
    FEWEST,
    RATES,
    closing_sections,
    cumulative,
    load_of,
    milliseconds,
    short,
    warnings,
)
from loadtest.statistics.comparison import Difference, differences, in_words
from loadtest.statistics.estimates import Estimate
from loadtest.statistics.figures import Figures
from loadtest.statistics.measures import MEASURES

CAVEAT = (
    "The intervals take requests as independent. What else changes from one run to the next, only "
    "repeated runs show."
)
SHOWN = ("p50", "p90", "p95", "p99", "p99.9")
MEASURED = ("ttft", "itl", "tpot", "e2e")
COMPARED_RATES = {
    **RATES,
    "goodput_per_second": "goodput/s",
    "goodput_share": "goodput, share",
    "error_rate": "errors, share",
    "requests": "requests",
}
Names = tuple[str, str]


def comparison_report(first: Figures, second: Figures, names: Names) -> Document:
    found = differences(first, second)
    sentences = [in_words(each, names) for each in found] or [
        "There are too few answers to compare."
    ]
    runs = dict(zip(names, (first, second), strict=True))
    recordings = {name: figures.recording for name, figures in runs.items()}
    return Document(
        title=f"{names[1]} against {names[0]}",
        subtitle=" · ".join(f"{name}: {load_of(r.run)}" for name, r in recordings.items()),
        sections=[
            Section("Summary", [*warnings(runs), Notes([*sentences, CAVEAT])]),
            Section("Medians", [_medians(found, names)] if found else []),
            Section(
                "Percentiles", [_percentiles(first, second, names), *_plots(first, second, names)]
            ),
            Section("Throughput", [_rates(first, second, names)]),
            Section(
                "What was asked differently",
                [_settings(first.recording.run, second.recording.run, names)],
            ),
            *closing_sections(recordings),
        ],
    )


def _medians(found: list[Difference], names: Names) -> Table:
    rows = [
        [
            Cell(f"{MEASURES[each.measure].title}, p50"),
            *(Cell(number(median * 1000)) for median in each.medians),
            measured(each.ratio),
            Cell("differs" if each.is_significant else "no difference shown"),
        ]
        for each in found
    ]
    header = ["milliseconds", *names, "ratio", "verdict"]
    return Table(header, rows, "Ratio: the second over the first.")


def _percentiles(first: Figures, second: Figures, names: Names) -> Table:
    """Return for each latency a row for each run, and one with the change."""
    rows = []
    for measure in MEASURED:
        if first.distributions[measure].count and second.distributions[measure].count:
            keys = [f"{measure}_{percentile}_ms" for percentile in SHOWN]
            for name, figures in zip(names, (first, second), strict=True):
                title = Cell(f"{MEASURES[measure].title}, {name}")
                rows.append([title, *(measured(figures.named[key]) for key in keys)])
            changes = [Cell(_change(first.named[key], second.named[key])) for key in keys]
            rows.append([Cell("change", tone=QUIET), *changes])
    return Table(["milliseconds", *SHOWN], rows)


def _change(first: Estimate, second: Estimate) -> str:
    return change(second.value / first.value - 1) if first.value and second.value else UNKNOWN


def _rates(first: Figures, second: Figures, names: Names) -> Table:
    pairs = {
        title: (first.named[name], second.named[name]) for name, title in COMPARED_RATES.items()
    }
    rows = [
        [Cell(title), measured(a), measured(b), Cell(_change(a, b))]
        for title, (a, b) in pairs.items()
        if a.value is not None or b.value is not None
    ]
    return Table(["", *names, "change"], rows)


def _settings(first: Run, second: Run, names: Names) -> Table | Notes:
    a, b = _flat(first), _flat(second)
    rows = [
        [Cell(key), *(Cell(short(each.get(key, UNKNOWN))) for each in (a, b))]
        for key in dict.fromkeys([*a, *b])
        if a.get(key) != b.get(key)
    ]
    return Table(["", *names], rows) if rows else Notes(["Both runs asked the same."])


def _flat(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {"url": run.url}
    for part in ("arrivals", "work", "settings", "objective"):
        values: Mapping[str, Any] = getattr(run, part) or {}
        found |= {f"{part}: {key}": value for key, value in values.items() if value is not None}
    return found


def _plots(first: Figures, second: Figures, names: Names) -> list[Plot]:
    plots = []
    for name in ("ttft", "itl", "e2e"):
        both = [milliseconds(figures, name) for figures in (first, second)]
        if min(map(len, both)) >= FEWEST:
            curves = [
                cumulative(title, each, role)
                for title, each, role in zip(names, both, ("first", "second"), strict=True)
            ]
            plot = Plot(
                title=MEASURES[name].title.capitalize(),
                caption="How many took at most so long; the curve further left is the faster run.",
                x=logarithmic(
                    "milliseconds",
                    min(float(each[0]) for each in both),
                    max(float(each[-1]) for each in both),
                ),
                y=Axis("percent", 0, 100),
                curves=curves,
            )
            plots.append(plot)
    return plots

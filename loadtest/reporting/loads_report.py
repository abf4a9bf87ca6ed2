"""Decides what is said of the same work under rising load: what was carried, and at which price."""

from collections.abc import Sequence

import numpy as np

from loadtest.reporting.document import (
    BAD,
    GOOD,
    Cell,
    Document,
    Notes,
    Section,
    Table,
    Tile,
    Tiles,
)
from loadtest.reporting.numbers import UNKNOWN, figure, interval, number, percent
from loadtest.reporting.plots import Curve, Kind, Mark, Plot, from_zero, logarithmic, values
from loadtest.reporting.run_report import definitions, how_it_was_made, load_of
from loadtest.statistics.figures import Figures
from loadtest.statistics.limits import Limit, objective_limits
from loadtest.statistics.measures import MEASURES
from loadtest.statistics.probes import (
    Capacity,
    capacity,
    load_in_words,
    load_unit,
    load_value,
    reasons_against,
)

COLUMNS = {
    "answers_per_second": "answers/s",
    "tokens_per_second": "tokens/s",
    "ttft_p50_ms": "TTFT p50",
    "ttft_p95_ms": "TTFT p95",
    "itl_p99_ms": "ITL p99",
    "e2e_p50_ms": "end to end p50",
    "e2e_p95_ms": "end to end p95",
    "e2e_p99_ms": "end to end p99",
}
LABELLED = "p50"
PERCENTILES = {"p50": "first", "p95": "second", "p99": "third"}


def loads_report(ordered: Sequence[Figures]) -> Document:
    """Report on runs in the order of their loads."""
    first, last = (figures.recording.run for figures in (ordered[0], ordered[-1]))
    return Document(
        title=f"Load test of {first.url}",
        subtitle=f"{len(ordered)} loads, from {load_of(first)} to {load_of(last)}",
        sections=[
            *_capacity(ordered),
            Section("Loads", [*_cautions(ordered), _table(ordered), *_plots(ordered)]),
            Section(
                "How it was measured",
                [Notes(how_it_was_made(ordered[0].recording))],
                is_brief=False,
            ),
            Section("Definitions", [Notes(definitions())], is_brief=False),
        ],
    )


def _capacity(runs: Sequence[Figures]) -> list[Section]:
    if not runs[0].objective:
        return []
    found = capacity(runs)
    limits = ", ".join(str(verdict.limit) for verdict in runs[0].objective)
    return [
        Section(
            "Capacity",
            [_capacity_tiles(found), Notes([*_capacity_words(runs), f"Objective: {limits}."])],
        )
    ]


def _capacity_tiles(found: Capacity) -> Tiles:
    if found.carried is None:
        return Tiles([Tile("highest load within the objective", "none", "", tone=BAD)])
    run, named = found.carried.recording.run, found.carried.named
    above = f"not {_load(found.not_carried)}" if found.not_carried else "no higher load was tried"
    return Tiles(
        [
            Tile(
                "highest load within the objective",
                number(load_value(run)),
                load_unit(run),
                above,
                GOOD,
            ),
            Tile(
                "answers",
                figure(named["answers_per_second"]),
                "/s",
                interval(named["answers_per_second"]),
            ),
            Tile(
                "generated tokens",
                figure(named["tokens_per_second"]),
                "/s",
                interval(named["tokens_per_second"]),
            ),
        ]
    )


def _capacity_words(runs: Sequence[Figures]) -> list[str]:
    """Say of every load that was too much why."""
    missed = [(figures, reasons_against(figures)) for figures in runs]
    found = [f"{_load(figures)} was too much: {'; '.join(why)}." for figures, why in missed if why]
    return found or ["The objective was met at every load."]


def _load(figures: Figures) -> str:
    return load_in_words(figures.recording.run)


def _cautions(runs: Sequence[Figures]) -> list[Notes]:
    lines = [f"{_load(figures)}: {each}" for figures in runs for each in figures.cautions]
    return [Notes(lines, is_warning=True)] if lines else []


def _table(runs: Sequence[Figures]) -> Table:
    known = [
        name for name in COLUMNS if any(figures.named[name].value is not None for figures in runs)
    ]
    unit = load_unit(runs[0].recording.run)
    verdict = ["objective"] if runs[0].objective else []
    header = [unit, *verdict, *(COLUMNS[name] for name in known), "errors"]
    note = "Latencies are in milliseconds. Small print: 95 % confidence intervals."
    return Table(header, [_row(figures, known) for figures in runs], note)


def _row(figures: Figures, known: Sequence[str]) -> list[Cell]:
    failed = figures.named["error_rate"].value
    cells = [Cell(number(load_value(figures.recording.run)))]
    if figures.objective:
        is_missed = bool(reasons_against(figures))
        cells.append(Cell("missed", tone=BAD) if is_missed else Cell("met", tone=GOOD))
    cells += [Cell(figure(e), interval(e)) for e in (figures.named[name] for name in known)]
    return [
        *cells,
        Cell(UNKNOWN if failed is None else percent(failed), tone=BAD if failed else ""),
    ]


def _plots(runs: Sequence[Figures]) -> list[Plot]:
    name = "ttft" if any(figures.named["ttft_p50_ms"].value for figures in runs) else "e2e"
    plots = [_throughput_latency(runs, each) for each in dict.fromkeys([name, "e2e"])]
    return [*plots, _throughput_by_load(runs)]


def _throughput_latency(runs: Sequence[Figures], name: str) -> Plot:
    """Draw what the server gave against how long it took: the knee is its capacity."""
    speed = "tokens_per_second" if runs[0].tokens_counted_by else "answers_per_second"
    curves = [
        curve
        for percentile, role in PERCENTILES.items()
        for curve in _latency_curve(runs, speed, f"{name}_{percentile}_ms", percentile, role)
    ]
    marks = [
        Mark(limit.bound, str(limit), is_horizontal=True) for limit in _limits_on(runs[0], name)
    ]
    found = np.concatenate([curve.y for curve in curves]) if curves else values([1.0])
    high = max([float(found.max()), *(mark.at for mark in marks)])
    return Plot(
        title=f"{MEASURES[name].title} against throughput".capitalize(),
        caption=f"Beside the points: {load_unit(runs[0].recording.run)}.",
        x=from_zero(speed.replace("_per_second", "/s"), *(curve.x for curve in curves)),
        y=logarithmic("milliseconds", float(found.min()), high),
        curves=curves,
        marks=marks,
    )


def _latency_curve(
    runs: Sequence[Figures], speed: str, figure_name: str, title: str, role: str
) -> list[Curve]:
    """Return a line and its dots through the runs in which both figures are known."""
    known = [
        (x, y, number(load_value(figures.recording.run)))
        for figures in runs
        if (x := figures.named[speed].value) is not None
        and (y := figures.named[figure_name].value) is not None
    ]
    if not known:
        return []
    x, y = values([each[:2] for each in known]).T
    labels = [label for *_, label in known] if title == LABELLED else []
    return [Curve(title, x, y, role), Curve(title, x, y, role, Kind.DOTS, labels=labels)]


def _limits_on(figures: Figures, name: str) -> list[Limit]:
    objective = figures.recording.run.objective or {}
    return [each for each in objective_limits(objective) if each.figure.startswith(f"{name}_p")]


def _throughput_by_load(runs: Sequence[Figures]) -> Plot:
    loads = values([load_value(figures.recording.run) for figures in runs])
    offered, answered = (
        values([figures.named[name].value or 0.0 for figures in runs])
        for name in ("offered_per_second", "answers_per_second")
    )
    unit = load_unit(runs[0].recording.run)
    curves = [
        Curve("offered", loads, offered, "quiet", is_dashed=True),
        Curve("answered", loads, answered, "first"),
        Curve("answered", loads, answered, "first", Kind.DOTS),
    ]
    return Plot(
        title="Throughput by load",
        caption="Where answers fall behind what is offered, the server is at its limit.",
        x=from_zero(unit, loads),
        y=from_zero("requests/s", offered, answered),
        curves=curves,
    )

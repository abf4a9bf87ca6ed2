"""The report of the same work under rising load."""

from collections.abc import Sequence

import numpy as np

from loadtest.reporting.document import (
    BAD,
    GOOD,
    Cell,
    Notes,
    ReportDocument,
    ReportSection,
    ReportTable,
    Tile,
    Tiles,
    measured_cell,
)
from loadtest.reporting.numbers import UNKNOWN, number, percent
from loadtest.reporting.plots import (
    Curve,
    CurveKind,
    Plot,
    PlotMark,
    from_zero,
    logarithmic,
    values,
)
from loadtest.reporting.run_report import closing_sections, load_of, tile, warnings
from loadtest.statistics.figures import Figures
from loadtest.statistics.limits import objective_limits
from loadtest.statistics.loads import (
    capacity,
    load_in_words,
    load_unit,
    load_value,
    reasons_against,
)
from loadtest.statistics.measures import MEASURES

COLUMNS = {
    "answers_per_second": "answers/s",
    "tokens_per_second": "tokens/s",
    "p50_ttft_ms": "TTFT p50",
    "p95_ttft_ms": "TTFT p95",
    "p99_itl_ms": "ITL p99",
    "p50_e2e_ms": "end to end p50",
    "p95_e2e_ms": "end to end p95",
    "p99_e2e_ms": "end to end p99",
}
LABELLED = "p50"
PERCENTILES = {"p50": "first", "p95": "second", "p99": "third"}


def loads_report(ordered: Sequence[Figures]) -> ReportDocument:
    """Report on runs in the order of their loads."""
    first, last = (figures.recording.run for figures in (ordered[0], ordered[-1]))
    return ReportDocument(
        title=f"Load test of {first.url}",
        subtitle=f"{len(ordered)} loads, from {load_of(first)} to {load_of(last)}",
        sections=[
            *_capacity(ordered),
            ReportSection(
                "Loads",
                [*warnings({_load(f): f for f in ordered}), _table(ordered), *_plots(ordered)],
            ),
            *closing_sections({"it": ordered[0].recording}),
        ],
    )


def _capacity(runs: Sequence[Figures]) -> list[ReportSection]:
    if not runs[0].objective:
        return []
    missed = [(figures, reasons_against(figures)) for figures in runs]
    lines = [f"{_load(figures)} was too much: {'; '.join(why)}." for figures, why in missed if why]
    limits = ", ".join(str(verdict.limit) for verdict in runs[0].objective)
    notes = Notes([*(lines or ["The objective was met at every load."]), f"Objective: {limits}."])
    return [ReportSection("Capacity", [_capacity_tiles(runs), notes])]


def _capacity_tiles(runs: Sequence[Figures]) -> Tiles:
    best, label = capacity(runs), "highest load within the objective"
    if best.carried is None:
        return Tiles([Tile(label, "none", "", tone=BAD)])
    run, named = best.carried.recording.run, best.carried.named
    above = f"not {_load(best.not_carried)}" if best.not_carried else "no higher load was tried"
    return Tiles(
        [
            Tile(label, number(load_value(run)), load_unit(run), above, GOOD),
            tile("answers", named["answers_per_second"], "/s"),
            tile("generated tokens", named["tokens_per_second"], "/s"),
        ]
    )


def _load(figures: Figures) -> str:
    return load_in_words(figures.recording.run)


def _table(runs: Sequence[Figures]) -> ReportTable:
    names = [
        name for name in COLUMNS if any(figures.named[name].value is not None for figures in runs)
    ]
    unit = load_unit(runs[0].recording.run)
    verdict = ["objective"] if runs[0].objective else []
    header = [unit, *verdict, *(COLUMNS[name] for name in names), "errors"]
    note = "Latencies are in milliseconds. Small print: 95 % confidence intervals."
    return ReportTable(header, [_row(figures, names) for figures in runs], note)


def _row(figures: Figures, names: Sequence[str]) -> list[Cell]:
    failed = figures.named["error_rate"].value
    cells = [Cell(number(load_value(figures.recording.run)))]
    if figures.objective:
        is_missed = bool(reasons_against(figures))
        cells.append(Cell("missed", tone=BAD) if is_missed else Cell("met", tone=GOOD))
    errors = Cell(UNKNOWN if failed is None else percent(failed), tone=BAD if failed else "")
    return [*cells, *(measured_cell(figures.named[name]) for name in names), errors]


def _plots(runs: Sequence[Figures]) -> list[Plot]:
    name = "ttft" if any(figures.named["p50_ttft_ms"].value for figures in runs) else "e2e"
    plots = [
        _throughput_latency(runs, name_of_figure) for name_of_figure in dict.fromkeys([name, "e2e"])
    ]
    return [*plots, _throughput_by_load(runs)]


def _throughput_latency(runs: Sequence[Figures], name: str) -> Plot:
    """Draw throughput against latency: the knee of the curve is the server's capacity."""
    speed = "tokens_per_second" if runs[0].tokens_counted_by else "answers_per_second"
    curves = [
        curve
        for percentile, role in PERCENTILES.items()
        for curve in _latency_curve(runs, speed, f"{percentile}_{name}_ms", percentile, role)
    ]
    objective = objective_limits(runs[0].recording.run.objective or {})
    marks = [
        PlotMark(bound.bound, str(bound))
        for bound in objective
        if bound.figure.startswith("p") and bound.figure.endswith(f"_{name}_ms")
    ]
    ys = np.concatenate([curve.y for curve in curves]) if curves else values([1.0])
    high = max([float(ys.max()), *(mark.at for mark in marks)])
    return Plot(
        title=f"{MEASURES[name].title} against throughput".capitalize(),
        caption=f"Beside the points: {load_unit(runs[0].recording.run)}.",
        x=from_zero(speed.replace("_per_second", "/s"), *(curve.x for curve in curves)),
        y=logarithmic("milliseconds", float(ys.min()), high),
        curves=curves,
        marks=marks,
    )


def _latency_curve(
    runs: Sequence[Figures], speed: str, figure_name: str, title: str, role: str
) -> list[Curve]:
    """Return a line and its dots through the runs whose figures are both known."""
    points = [
        (x, y, number(load_value(figures.recording.run)))
        for figures in runs
        if (x := figures.named[speed].value) is not None
        and (y := figures.named[figure_name].value) is not None
    ]
    if not points:
        return []
    x, y = values([point[:2] for point in points]).T
    labels = [label for *_, label in points] if title == LABELLED else []
    return [Curve(title, x, y, role), Curve(title, x, y, role, CurveKind.DOTS, labels=labels)]


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
        Curve("answered", loads, answered, "first", CurveKind.DOTS),
    ]
    return Plot(
        title="Throughput by load",
        caption="Where answers fall behind what is offered, the server is at its limit.",
        x=from_zero(unit, loads),
        y=from_zero("requests/s", offered, answered),
        curves=curves,
    )

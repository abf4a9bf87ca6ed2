"""Tables of costs by length: the kind of a model, and its measured cost."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from loadtest.bench.length_costs import LengthCosts, Phase, Point, Way, rises
from loadtest.reporting.document import Cell, Notes, ReportDocument, ReportSection, ReportTable

# Complexity of a layer, operations one after the other, longest path between two positions
# (Vaswani et al. 2017, table 1).
THEORY = {
    Way.ATTENTION: ("N²·d", "1", "1"),
    Way.RECURRENCE: ("N·d²", "N", "N"),
    Way.CONVOLUTION: ("k·N·d²", "1", "N/k"),
}


def document_of(costs: Sequence[LengthCosts], threads: int) -> ReportDocument:
    rows = costs[0].rows
    subtitle = f"{rows} {'row' if rows == 1 else 'rows'} at a time, {threads} threads"
    ways = ReportSection("How sequences are read", [_ways(costs)])
    return ReportDocument(
        "What a token costs at each length", subtitle, [ways, *map(_section, costs)]
    )


NOTES = Notes(
    (
        "N: length; d: width of the model; k: width of a convolution",
        "per layer, in turn, path: operations of a layer for N tokens, those one after the other,",
        "  and steps between two tokens, by how the model reads (Vaswani et al. 2017, table 1)",
        "reading, writing: whether a token's operations rise with N, as counted",
        "read, write: operations of a token, a multiply-add as two, and how many tokens a second",
        "keeps: a request's states; touches: what of them a token reads and writes",
        "weights: what a step multiplies by, once for all rows",
    )
)


def _ways(costs: Sequence[LengthCosts]) -> ReportTable:
    header = (
        "model",
        "reads by",
        "per layer",
        "in turn",
        "path",
        "reading",
        "writing",
        "keeps",
        "weights",
    )
    return ReportTable(
        header,
        [[Cell(text) for text in _way_of(cost)] for cost in costs],
    )


def _way_of(costs: LengthCosts) -> tuple[str, ...]:
    points = costs.points
    keeps = points[-1].state_bytes > points[0].state_bytes
    return (
        costs.name,
        costs.reads_by,
        *THEORY[costs.reads_by],
        _trend(rises(points, "read")) if points[0].read else "by steps",
        _trend(rises(points, "write")) if points[0].write else "-",
        _trend(keeps),
        _size(costs.weight_bytes),
    )


def _trend(rising: bool) -> str:
    return "rises" if rising else "same"


def _section(costs: LengthCosts) -> ReportSection:
    header = ("N", "read", "tokens/s", "write", "tokens/s", "keeps", "touches")
    table = ReportTable(header, [[Cell(t) for t in _line(point)] for point in costs.points])
    return ReportSection(f"{costs.name} ({costs.architecture})", [table])


def _line(point: Point) -> Iterator[str]:
    yield f"{point.length:,}"
    for phase in (point.read, point.write):
        yield from _phase(phase)
    yield _size(point.state_bytes)
    yield _size(point.touched_bytes)


def _phase(phase: Phase | None) -> tuple[str, str]:
    if phase is None:
        return "-", "-"
    return _short(phase.operations), f"{1 / phase.seconds:,.0f}"


def _short(count: float) -> str:
    """Write a count with three digits and its unit."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f}"


def _size(num_bytes: int) -> str:
    count = _short(num_bytes)
    return f"{count}B" if " " in count else f"{count} B"


_DOTS_PER_INCH = 150
# Letters stay letters, and the same figures give the same file.
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "attendant"}
_MARKERS = "osD^vPX*<>"


def draw(length_costs: Sequence[LengthCosts], path: Path) -> None:
    """Draw one line for each model, in the format of the path's suffix."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(10, 7), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True)
        for column, phase in enumerate(("read", "write")):
            for number, costs in enumerate(length_costs):
                _lines(axes[:, column], costs, phase, _MARKERS[number % len(_MARKERS)])
            title = "reading a token" if phase == "read" else "writing a token"
            axes[0, column].set(title=title, ylabel="operations" if phase == "read" else "")
            axes[1, column].set(xlabel="length N", ylabel="tokens/s" if phase == "read" else "")
        for axis in axes.flat:
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.xaxis.set_major_formatter("{x:.0f}")
            axis.grid(alpha=0.3)
        handles, names = axes[0, 1].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(path, dpi=_DOTS_PER_INCH)


def _lines(axes: Any, costs: LengthCosts, name: str, marker: str) -> None:
    phases: list[Phase | None] = [getattr(point, name) for point in costs.points]
    there = [(p.length, q) for p, q in zip(costs.points, phases, strict=True) if q is not None]
    lengths = [length for length, _ in there]
    style: dict[str, Any] = {"marker": marker, "markersize": 4, "label": costs.name}
    axes[0].plot(lengths, [phase.operations for _, phase in there], **style)
    axes[1].plot(lengths, [1 / phase.seconds for _, phase in there], **style)

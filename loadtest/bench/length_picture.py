"""Draws costs by length: operations of a token, and tokens a second, of reading and of writing.

Needs matplotlib.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from loadtest.bench.length_costs import LengthCosts, Phase

_DOTS_PER_INCH = 150
# Letters stay letters, and the same figures give the same file.
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "attendant"}
_MARKERS = "osD^vPX*<>"


def draw(found: Sequence[LengthCosts], path: Path) -> None:
    """Draw one line for each model, in the format of the path's suffix."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(10, 7), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True)
        for column, phase in enumerate(("read", "write")):
            for number, costs in enumerate(found):
                _lines(axes[:, column], costs, phase, _MARKERS[number % len(_MARKERS)])
            title = "reading a token" if phase == "read" else "writing a token"
            axes[0, column].set(title=title, ylabel="operations" if phase == "read" else "")
            axes[1, column].set(xlabel="length N", ylabel="tokens/s" if phase == "read" else "")
        for each in axes.flat:
            each.set_xscale("log", base=2)
            each.set_yscale("log")
            each.xaxis.set_major_formatter("{x:.0f}")
            each.grid(alpha=0.3)
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

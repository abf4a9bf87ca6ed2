"""Plots and how they are drawn: SVG shapes in a square of 1000 by 1000, stretched by the page."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loadtest.reporting.numbers import number

MOST_POINTS = 400
SIZE = 1000


class CurveKind(StrEnum):
    LINE = "line"
    STEPS = "steps"  # each value holds until the next x
    DOTS = "dots"


@dataclass(frozen=True, slots=True)
class PlotAxis:
    label: str
    low: float
    high: float
    is_logarithmic: bool = False

    def place(self, value: float) -> float:
        """Return where a value is, from 0 at the low end to 1 at the high end."""
        low, high, at = self.low, self.high, value
        if self.is_logarithmic:
            low, high, at = (
                math.log10(max(number_in_data, 1e-12)) for number_in_data in (low, high, at)
            )
        return (at - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the places of ticks with their labels."""
        values = (_log_ticks if self.is_logarithmic else _linear_ticks)(self.low, self.high)
        return [(self.place(value), label) for value, label in values]


@dataclass(frozen=True, slots=True)
class Curve:
    """One set of values. role: its colour, a class of the page's style. labels: of dots."""

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    role: str
    kind: CurveKind = CurveKind.LINE
    labels: Sequence[str] = ()
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class PlotMark:
    """A horizontal line with a label, such as a limit."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Plot:
    """outside: ranges of x that are not part of what was measured."""

    title: str
    caption: str
    x: PlotAxis
    y: PlotAxis
    curves: Sequence[Curve]
    marks: Sequence[PlotMark] = ()
    outside: Sequence[tuple[float, float]] = ()


def values(numbers: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(numbers, dtype=np.float64)


def thin_out(count: int) -> NDArray[np.int64]:
    """Return the indices of the points to draw, of so many."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(np.int64))


def from_zero(label: str, *arrays: NDArray[np.float64]) -> PlotAxis:
    """Return an axis from 0 to a round number above all values."""
    finite = (
        np.concatenate([array[np.isfinite(array)] for array in arrays]) if arrays else values([])
    )
    most = float(finite.max()) if len(finite) else 0.0
    if not most:
        return PlotAxis(label, 0.0, 1.0)
    step = _step(most * 1.05)
    return PlotAxis(label, 0.0, math.ceil(most * 1.05 / step) * step)


def logarithmic(label: str, low: float, high: float) -> PlotAxis:
    """Return an axis a little wider than the values."""
    low = max(low, 1e-6)
    high = max(high, low * 1.5)
    return PlotAxis(label, low / 1.1, high * 1.1, is_logarithmic=True)


def _step(span: float) -> float:
    """Return a round step that cuts a span into four to eight."""
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)


def _linear_ticks(low: float, high: float) -> list[tuple[float, str]]:
    step = _step(high - low)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [(i * step, f"{round(i * step, 9):,.10g}") for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    span = math.log10(high / low)
    if span < 0.7:
        return _linear_ticks(low, high)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    leading = (1,) if span > 3.5 else (1, 3) if span > 2 else (1, 2, 5)
    ticks = [lead * 10.0**decade for decade in decades for lead in leading]
    return [(tick, number(tick)) for tick in ticks if low <= tick <= high]


def place(plot: Plot, x: float, y: float) -> tuple[float, float]:
    """Return where a point is in the square; y grows downwards."""
    return SIZE * plot.x.place(x), SIZE * (1 - plot.y.place(y))


def shape(plot: Plot, curve: Curve) -> str:
    dashed = " dashed" * curve.is_dashed
    path = _PATHS[curve.kind](plot, curve)
    return f'<path class="{curve.kind} {curve.role}{dashed}" d="{path}"/>'


def _line(plot: Plot, curve: Curve) -> str:
    """Connect neighbouring points, with a gap where a value is missing."""
    parts = []
    for run in _runs(curve):
        points = [place(plot, curve.x[i], curve.y[i]) for i in run]
        parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points))
        if len(points) == 1:
            parts.append("h0")
    return "".join(parts)


def _runs(curve: Curve) -> Iterator[list[int]]:
    finite = np.flatnonzero(np.isfinite(curve.y))
    for run in np.split(finite, np.flatnonzero(np.diff(finite) > 1) + 1):
        if len(run):
            yield run.tolist()


def _steps(plot: Plot, curve: Curve) -> str:
    points = [place(plot, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
    begun = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    return begun + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:]) + f"H{SIZE}"


def _dots(plot: Plot, curve: Curve) -> str:
    points = [place(plot, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
    return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)


_PATHS = {CurveKind.LINE: _line, CurveKind.STEPS: _steps, CurveKind.DOTS: _dots}


FEWEST_FOR_LEGEND = 2
WIDTH, HEIGHT = 110, 60  # of a label, of SIZE


def draw(plot: Plot) -> str:
    shapes = "".join([*_outside(plot), *_grid(plot), *_marks(plot), *_shapes(plot)])
    return (
        f'<figure><h3>{escape(plot.title)}</h3>{_legend(plot)}<div class="plot">'
        f'<div class="ylabel">{escape(plot.y.label)}</div>'
        f'<div class="yticks">{_y_ticks(plot)}</div>'
        f'<div class="area" data-plot="{escape(_data(plot))}">'
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(plot.title)}">{shapes}</svg>{"".join(_letters(plot))}</div>'
        f'<div class="xticks">{_x_ticks(plot)}</div>'
        f'<div class="xlabel">{escape(plot.x.label)}</div></div>'
        f"<figcaption>{escape(plot.caption)}</figcaption></figure>"
    )


def _shapes(plot: Plot) -> Iterator[str]:
    for curve in sorted(
        plot.curves, key=lambda curve_of_plot: curve_of_plot.kind is CurveKind.DOTS
    ):  # dots on top
        if len(curve.x):
            yield shape(plot, curve)


def _outside(plot: Plot) -> Iterator[str]:
    for low, high in plot.outside:
        left, right = (SIZE * plot.x.place(bound) for bound in (low, high))
        if right > left:
            where = f'x="{left:.1f}" y="0" width="{right - left:.1f}" height="{SIZE}"'
            yield f'<rect class="outside" {where}/>'


def _grid(plot: Plot) -> Iterator[str]:
    for at, _ in plot.y.ticks():
        yield f'<path class="grid" d="M0 {SIZE * (1 - at):.1f}H{SIZE}"/>'
    for at, _ in plot.x.ticks():
        yield f'<path class="grid" d="M{SIZE * at:.1f} 0V{SIZE}"/>'


def _marks(plot: Plot) -> Iterator[str]:
    for mark in plot.marks:
        yield f'<path class="mark" d="M0 {SIZE * (1 - plot.y.place(mark.at)):.1f}H{SIZE}"/>'


def _letters(plot: Plot) -> Iterator[str]:
    """Yield the labels of marks and dots."""
    for mark in plot.marks:
        style = f"left:2px;top:{1 - plot.y.place(mark.at):.2%}"
        yield f'<span class="marked" style="{style}">{escape(mark.label)}</span>'
    dots = [
        (place(plot, x, y), label, curve.role)
        for curve in plot.curves
        for x, y, label in zip(curve.x, curve.y, curve.labels, strict=False)
    ]
    for (left, top), label, role in dots:
        near = [a for (a, b), *_ in dots if abs(left - a) < WIDTH and abs(top - b) < HEIGHT]
        if len(near) == 1:  # labels of close dots would overlap; the script shows them
            side = "low" if left > 0.85 * SIZE else ""
            style = f"left:{left / SIZE:.2%};top:{top / SIZE:.2%}"
            yield f'<span class="dot {side} {role}" style="{style}">{escape(label)}</span>'


def _legend(plot: Plot) -> str:
    lines = [curve for curve in plot.curves if curve.kind in (CurveKind.LINE, CurveKind.STEPS)]
    if len(lines) < FEWEST_FOR_LEGEND:
        return ""
    return f'<div class="legend">{"".join(map(_legend_item, lines))}</div>'


def _legend_item(curve: Curve) -> str:
    dashed = " dashed" * curve.is_dashed
    return f'<span class="{curve.role}{dashed}"><i></i>{escape(curve.name)}</span>'


def _x_ticks(plot: Plot) -> str:
    return "".join(
        f'<span style="left:{at:.2%}">{escape(label)}</span>' for at, label in plot.x.ticks()
    )


def _y_ticks(plot: Plot) -> str:
    return "".join(
        f'<span style="bottom:{at:.2%}">{escape(label)}</span>' for at, label in plot.y.ticks()
    )


def _data(plot: Plot) -> str:
    """Return what the page's script shows under the pointer: places from 0 to 1, and values."""
    curves = {curve.name: curve for curve in plot.curves}
    points = [_points(plot, curve) for curve in curves.values()]
    return json.dumps({"x": plot.x.label, "y": plot.y.label, "curves": points}, allow_nan=False)


def _points(plot: Plot, curve: Curve) -> dict[str, object]:
    is_finite = np.isfinite(curve.y)
    x, y = curve.x[is_finite], curve.y[is_finite]
    return {
        "name": curve.name,
        "role": curve.role,
        "at": [round(plot.x.place(value), 4) for value in x],
        "x": [float(f"{value:.4g}") for value in x],
        "y": [float(f"{value:.4g}") for value in y],
        "labels": list(curve.labels),
    }

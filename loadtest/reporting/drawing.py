"""Turns curves into SVG shapes in a square of 1000 by 1000, whose lines keep their width however it
is stretched.
"""

import json
from collections.abc import Iterator
from html import escape

import numpy as np

from loadtest.reporting.plots import Curve, Kind, Mark, Plot, values

SIZE = 1000


def place(plot: Plot, x: float, y: float) -> tuple[float, float]:
    """Return where a point stands; y grows downwards."""
    return SIZE * plot.x.place(x), SIZE * (1 - plot.y.place(y))


def shape(plot: Plot, curve: Curve) -> str:
    dashed = " dashed" * curve.is_dashed
    path = _PATHS[curve.kind](plot, curve)
    return f'<path class="{curve.kind} {curve.role}{dashed}" d="{path}"/>'


def _line(plot: Plot, curve: Curve) -> str:
    """Connect neighbouring points; where a value is missing, so is the line."""
    parts = []
    for run in _runs(curve):
        points = [place(plot, curve.x[i], curve.y[i]) for i in run]
        parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points))
        if len(points) == 1:
            parts.append("h0")
    return "".join(parts)


def _runs(curve: Curve) -> Iterator[list[int]]:
    known = np.flatnonzero(np.isfinite(curve.y))
    for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
        if len(run):
            yield run.tolist()


def _steps(plot: Plot, curve: Curve) -> str:
    points = [place(plot, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
    begun = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    return begun + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:]) + f"H{SIZE}"


def _bars(plot: Plot, curve: Curve) -> str:
    parts = []
    for left, right, y in zip(curve.x, curve.x[1:], curve.y, strict=False):
        x, top = place(plot, left, y)
        width = 0.94 * (place(plot, right, y)[0] - x)
        if top < SIZE:
            parts.append(f"M{x:.1f} {SIZE}V{top:.1f}h{width:.1f}V{SIZE}z")
    return "".join(parts)


def _dots(plot: Plot, curve: Curve) -> str:
    points = [place(plot, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
    return "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)


def _band(plot: Plot, curve: Curve) -> str:
    upper = values([]) if curve.upper is None else curve.upper
    there = [place(plot, x, y) for x, y in zip(curve.x, curve.y, strict=True)]
    back = [place(plot, x, y) for x, y in zip(curve.x[::-1], upper[::-1], strict=True)]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in [*there, *back]) + "z"


_PATHS = {
    Kind.LINE: _line,
    Kind.STEPS: _steps,
    Kind.BARS: _bars,
    Kind.DOTS: _dots,
    Kind.BAND: _band,
}


FEWEST_FOR_LEGEND = 2
ROOM = (110, 60)  # that a label takes, of SIZE


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
    order = [Kind.BAND, Kind.BARS, Kind.STEPS, Kind.LINE, Kind.DOTS]
    for curve in sorted(plot.curves, key=lambda each: order.index(each.kind)):
        if len(curve.x):
            yield shape(plot, curve)


def _outside(plot: Plot) -> Iterator[str]:
    for low, high in plot.outside:
        left, right = (SIZE * plot.x.place(each) for each in (low, high))
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
        if mark.is_horizontal:
            yield f'<path class="mark" d="M0 {SIZE * (1 - plot.y.place(mark.at)):.1f}H{SIZE}"/>'
        else:
            yield f'<path class="mark" d="M{SIZE * plot.x.place(mark.at):.1f} 0V{SIZE}"/>'


def _letters(plot: Plot) -> Iterator[str]:
    """Place what is written inside the plot: at marks, and at dots."""
    for mark in plot.marks:
        yield f'<span class="marked" style="{_beside(plot, mark)}">{escape(mark.label)}</span>'
    dots = [
        (place(plot, x, y), label, curve.role)
        for curve in plot.curves
        for x, y, label in zip(curve.x, curve.y, curve.labels, strict=False)
    ]
    for (left, top), label, role in dots:
        near = [a for (a, b), *_ in dots if abs(left - a) < ROOM[0] and abs(top - b) < ROOM[1]]
        if len(near) == 1:  # where dots are close, only the script says which is which
            side = "low" if left > 0.85 * SIZE else ""
            style = f"left:{left / SIZE:.2%};top:{top / SIZE:.2%}"
            yield f'<span class="dot {side} {role}" style="{style}">{escape(label)}</span>'


def _beside(plot: Plot, mark: Mark) -> str:
    if mark.is_horizontal:
        return f"left:2px;top:{1 - plot.y.place(mark.at):.2%}"
    return f"left:{plot.x.place(mark.at):.2%};top:0"


def _legend(plot: Plot) -> str:
    shown = [curve for curve in plot.curves if curve.kind in (Kind.LINE, Kind.STEPS)]
    if len(shown) < FEWEST_FOR_LEGEND:
        return ""
    return f'<div class="legend">{"".join(map(_legend_item, shown))}</div>'


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
    """Return what the script shows under the pointer: places from 0 to 1, and values."""
    curves = {curve.name: curve for curve in plot.curves if curve.kind is not Kind.BAND}
    points = [_points(plot, curve) for curve in curves.values()]
    return json.dumps({"x": plot.x.label, "y": plot.y.label, "curves": points}, allow_nan=False)


def _points(plot: Plot, curve: Curve) -> dict[str, object]:
    known = np.isfinite(curve.y)
    x, y = curve.x[known], curve.y[known]
    if curve.kind is Kind.BARS:
        x, y = (x[1:] + x[:-1]) / 2, y[:-1]
    return {
        "name": curve.name,
        "role": curve.role,
        "at": [round(plot.x.place(each), 4) for each in x],
        "x": [float(f"{each:.4g}") for each in x],
        "y": [float(f"{each:.4g}") for each in y],
        "labels": list(curve.labels),
    }

"""Turns curves into SVG shapes in a square of 1000 by 1000, whose lines keep their width however it
is stretched.
"""

from collections.abc import Iterator

import numpy as np

from loadtest.reporting.plots import Curve, Kind, Plot, values

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

"""Holds plots before they are drawn: axes, and what stands between them. Also picks ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loadtest.reporting.numbers import number

MOST_POINTS = 400


class Kind(StrEnum):
    LINE = "line"
    STEPS = "steps"  # each value holds until the next x
    BARS = "bars"  # from x to the next x
    DOTS = "dots"
    BAND = "band"  # between y and `upper`


class Scale(StrEnum):
    LINEAR = "linear"
    LOG = "log"
    NINES = "nines"  # of percentiles: each further nine takes as much room


@dataclass(frozen=True, slots=True)
class Axis:
    label: str
    low: float
    high: float
    scale: Scale = Scale.LINEAR

    def place(self, value: float) -> float:
        """Return where a value stands, from 0 at the low end to 1 at the high one."""
        low, high, at = (self._straight(each) for each in (self.low, self.high, value))
        return (at - low) / (high - low)

    def _straight(self, value: float) -> float:
        match self.scale:
            case Scale.LINEAR:
                return value
            case Scale.LOG:
                return math.log10(max(value, 1e-12))
            case Scale.NINES:
                return -math.log10(1 - min(value, 99.9999) / 100)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places of ticks with their labels."""
        values = _TICKS[self.scale](self.low, self.high)
        return [(self.place(value), label) for value, label in values]


@dataclass(frozen=True, slots=True)
class Curve:
    """Holds one set of values. role: which colour it has, by what it means. labels: of dots."""

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    role: str
    kind: Kind = Kind.LINE
    upper: NDArray[np.float64] | None = None
    labels: Sequence[str] = ()
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Holds a line across the plot, such as a limit, with its label."""

    at: float
    label: str
    is_horizontal: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """Holds a picture. caption: what it shows. outside: where x lies outside what is measured."""

    title: str
    caption: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]
    marks: Sequence[Mark] = ()
    outside: Sequence[tuple[float, float]] = ()


def values(found: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(found, dtype=np.float64)


def thinned(count: int) -> NDArray[np.int64]:
    """Return which of so many points to draw."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(np.int64))


def from_zero(label: str, *found: NDArray[np.float64]) -> Axis:
    """Return an axis from 0 to a round number above all values."""
    finite = np.concatenate([each[np.isfinite(each)] for each in found]) if found else values([])
    most = float(finite.max()) if len(finite) else 0.0
    if not most:
        return Axis(label, 0.0, 1.0)
    step = _step(most * 1.05)
    return Axis(label, 0.0, math.ceil(most * 1.05 / step) * step)


def logarithmic(label: str, low: float, high: float) -> Axis:
    """Return an axis around all values, a little wider than they are."""
    low = max(low, 1e-6)
    high = max(high, low * 1.5)
    return Axis(label, low / 1.1, high * 1.1, Scale.LOG)


def _step(span: float) -> float:
    """Return a round step that cuts a span into four to eight."""
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * 0.999)


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
    found = [lead * 10.0**decade for decade in decades for lead in leading]
    return [(each, number(each)) for each in found if low <= each <= high]


def _nines_ticks(low: float, high: float) -> list[tuple[float, str]]:
    known = (50.0, 90.0, 99.0, 99.9, 99.99)
    return [(each, f"{each:g} %") for each in known if low <= each <= high]


_TICKS = {Scale.LINEAR: _linear_ticks, Scale.LOG: _log_ticks, Scale.NINES: _nines_ticks}

"""Finds the highest rate that a server carries: doubles the rate until it is too much, and then
halves the gap between what was carried and what was not.
"""

from collections.abc import Callable

LOWEST_PART = 1 / 64  # of the first rate; below it there is none
MOST_DOUBLINGS = 16

Carries = Callable[[float], bool]


def find_capacity(carries: Carries, first: float, precision: float) -> None:
    """Ask for one rate after another. precision: the gap that may be left, as a part of the rate.

    The answers are the caller's to keep: they are the evidence.
    """
    bracket = _bracket(carries, first)
    if bracket is None:
        return
    low, high = bracket
    while high - low > precision * low:
        middle = _rounded((low + high) / 2)
        if not low < middle < high:
            return
        low, high = (middle, high) if carries(middle) else (low, middle)


def _bracket(carries: Carries, first: float) -> tuple[float, float] | None:
    """Return a rate that is carried and one that is not; None where there are no such two."""
    if not carries(first):
        return _bracket_below(carries, first)
    low = first
    for _ in range(MOST_DOUBLINGS):
        if not carries(2 * low):
            return low, 2 * low
        low *= 2
    return None


def _bracket_below(carries: Carries, first: float) -> tuple[float, float] | None:
    high = first
    while high > first * LOWEST_PART:
        if carries(high / 2):
            return high / 2, high
        high /= 2
    return None


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")

"""Axes hold all values, and their ticks are where they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.reporting.drawing import SIZE, place, shape
from loadtest.reporting.plots import (
    MOST_POINTS,
    Axis,
    Curve,
    Kind,
    Plot,
    Scale,
    from_zero,
    logarithmic,
    thinned,
)

POSITIVE = st.floats(1e-3, 1e7)


@given(st.lists(POSITIVE, min_size=1, max_size=30))
def test_an_axis_from_zero_holds_all(values: list[float]) -> None:
    axis = from_zero("x", np.array(values))
    assert all(0 <= axis.place(value) <= 1 for value in values)
    places = [place for place, _ in axis.ticks()]
    assert 4 <= len(places) <= 12
    assert places == sorted(places)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)


@given(POSITIVE, st.floats(1, 1e5))
def test_a_logarithmic_axis_holds_all_and_has_ticks(low: float, times: float) -> None:
    axis = logarithmic("x", low, low * times)
    assert 0 < axis.place(low) < axis.place(low * times * 1.01) < 1.01
    labels = [label for _, label in axis.ticks()]
    assert 1 <= len(labels) <= 12
    assert len(set(labels)) == len(labels)


def test_each_nine_has_the_same_room() -> None:
    axis = Axis("percentile", 0, 99.9, Scale.NINES)
    found = [axis.place(value) for value in (0.0, 90.0, 99.0, 99.9)]
    assert found == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_values_that_are_not_there_leave_a_gap() -> None:
    x, y = np.arange(5.0), np.array([1.0, 2.0, np.nan, np.nan, 1.0])
    plot = Plot("t", "c", Axis("x", 0, 4), Axis("y", 0, 2), [])
    path = shape(plot, Curve("a", x, y, "first"))
    assert 'd="M0.0 500.0L250.0 0.0M1000.0 500.0h0"' in path
    assert place(plot, 4.0, 0.0) == (SIZE, SIZE)


def test_bars_stand_between_their_edges() -> None:
    plot = Plot("t", "c", Axis("x", 0, 2), Axis("y", 0, 10), [])
    curve = Curve("a", np.array([0.0, 1.0, 2.0]), np.array([5.0, 0.0, 0.0]), "first", Kind.BARS)
    assert 'd="M0.0 1000V500.0h470.0V1000z"' in shape(plot, curve)


def test_long_curves_are_thinned_to_their_ends() -> None:
    keep = thinned(10_000)
    assert (keep[0], keep[-1]) == (0, 9999)
    assert len(keep) <= MOST_POINTS
    assert thinned(3).tolist() == [0, 1, 2]

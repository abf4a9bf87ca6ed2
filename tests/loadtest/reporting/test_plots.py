"""Figures keep three significant digits; axes hold all values, and ticks are where they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.reporting.numbers import change, figure, interval, number, percent
from loadtest.reporting.plots import (
    MOST_POINTS,
    SIZE,
    Curve,
    Plot,
    PlotAxis,
    from_zero,
    logarithmic,
    place,
    shape,
    thin_out,
)
from loadtest.statistics.estimates import Estimate

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


def test_values_that_are_not_there_leave_a_gap() -> None:
    x, y = np.arange(5.0), np.array([1.0, 2.0, np.nan, np.nan, 1.0])
    plot = Plot("t", "c", PlotAxis("x", 0, 4), PlotAxis("y", 0, 2), [])
    path = shape(plot, Curve("a", x, y, "first"))
    assert 'd="M0.0 500.0L250.0 0.0M1000.0 500.0h0"' in path
    assert place(plot, 4.0, 0.0) == (SIZE, SIZE)


def test_long_curves_are_thinned_to_their_ends() -> None:
    keep = thin_out(10_000)
    assert (keep[0], keep[-1]) == (0, 9999)
    assert len(keep) <= MOST_POINTS
    assert thin_out(3).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00123456, "0.00123"),
        (0.5, "0.5"),
        (1.2345, "1.23"),
        (9.999, "10.0"),
        (12.345, "12.3"),
        (99.97, "100"),
        (1234.56, "1,235"),
        (42.0, "42"),
        (1e9, "1,000,000,000"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_shares_near_the_ends_keep_more_digits() -> None:
    found = [percent(share) for share in (0.0, 0.0012, 0.25, 0.9994, 1.0)]
    assert found == ["0 %", "0.12 %", "25.0 %", "99.94 %", "100 %"]


def test_what_is_unknown_is_a_dash() -> None:
    unknown = Estimate(None, reason="3 samples")
    assert (figure(unknown), interval(unknown)) == ("-", "")
    assert interval(Estimate(5.0)) == ""
    assert interval(Estimate(5.0, low=4.0)) == "4–?"
    assert change(-0.0712) == "-7.1 %"

"""Figures keep three digits that count."""

import pytest

from loadtest.reporting.numbers import change, figure, interval, number, percent
from loadtest.statistics.estimates import Estimate


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

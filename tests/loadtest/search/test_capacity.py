"""The search for a capacity: whatever it is, the answer is near, and few rates are asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.capacity import LOWEST_PART, find_capacity


def asked(capacity: float, first: float, precision: float) -> list[float]:
    rates: list[float] = []

    def carries(rate: float) -> bool:
        rates.append(rate)
        return rate <= capacity

    find_capacity(carries, first, precision)
    return rates


@given(st.floats(0.05, 5000), st.floats(0.5, 50), st.sampled_from([0.02, 0.05, 0.2]))
def test_the_capacity_is_bracketed(capacity: float, first: float, precision: float) -> None:
    rates = asked(capacity, first, precision)
    assert len(rates) <= 16 + 8
    assert len(set(rates)) == len(rates)
    carried = [rate for rate in rates if rate <= capacity]
    if not carried:
        assert capacity < first * LOWEST_PART * 2
        return
    above = min(rate for rate in rates if rate > capacity)
    assert above - max(carried) <= max(precision, 0.01) * max(carried) * 1.001


def test_the_order_is_doubling_and_then_halving_gaps() -> None:
    assert asked(11.0, 1.0, 0.1) == [1.0, 2.0, 4.0, 8.0, 16.0, 12.0, 10.0, 11.0]
    assert asked(0.3, 1.0, 0.2) == [1.0, 0.5, 0.25, 0.375, 0.312, 0.281]


def test_a_server_that_carries_everything_ends_the_search() -> None:
    rates = asked(float("inf"), 1.0, 0.05)
    assert rates[-1] == 2.0**16


@pytest.mark.parametrize("first", [1.0, 64.0])
def test_a_server_that_carries_nothing_ends_the_search(first: float) -> None:
    assert len(asked(0.0, first, 0.05)) == 7

"""Sinusoids of other toolkits, held against their formulas, number by number."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from export.readers.common.shapes import sinusoids

DIM, NUM, FIRST = 8, 5, 2


def table(rate: Callable[[int], float]) -> list[list[float]]:
    half = range(DIM // 2)
    positions = range(FIRST, FIRST + NUM)
    return [
        [function(p * rate(i)) for function in (math.sin, math.cos) for i in half]
        for p in positions
    ]


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_rates_are_those_of_the_papers(precision: type[np.floating]) -> None:
    vaswani = sinusoids((NUM, DIM), FIRST, rates="vaswani", precision=precision)
    assert np.allclose(vaswani, table(lambda i: 10000 ** (-2 * i / DIM)), atol=1e-6)
    found = sinusoids((NUM, DIM), FIRST, precision=precision)
    assert np.allclose(found, table(lambda i: 10000 ** (-i / (DIM // 2 - 1))), atol=1e-6)
    assert vaswani.dtype == found.dtype == np.float32


def test_odd_widths_end_with_zeros() -> None:
    found = sinusoids((NUM, DIM + 1))
    assert found.shape == (NUM, DIM + 1) and not found[:, -1].any()
    assert np.array_equal(found[:, :-1], sinusoids((NUM, DIM)))

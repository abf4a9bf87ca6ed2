"""Grids of test cases: `make test` runs a part that touches every value, `make test-all` the rest.

@pytest.mark.parametrize(("architecture", "precision"), in_turns(DECODERS, PRECISIONS))
@pytest.mark.parametrize(("place", "num_heads", "lengths"), pairwise(PLACES, HEADS, LENGTHS))
@pytest.mark.parametrize("precision", [Precision.INT8, *full([Precision.FP32])])
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def full(cases: Iterable[Any]) -> list[Any]:
    """Return the cases as parameters that are marked ``full``."""
    return [_parameters(case, is_full=True) for case in cases]


def in_turns(cases: Iterable[Any], options: Collection[Any], first: int = 0) -> list[Any]:
    """Return every case with every option. All but one option of each case are marked ``full``.

    The unmarked option is number ``first`` for the first case, and the next one for the next case.
    """
    return [
        _parameters(case, option, is_full=(number + first) % len(options) != place)
        for number, case in enumerate(cases)
        for place, option in enumerate(options)
    ]


def pairwise(*dimensions: Sequence[Any]) -> list[Any]:
    """Return every combination of a value of each dimension. Those that are not marked ``full``
    contain each pair of values of two dimensions.
    """
    grid = list(product(*map(range, map(len, dimensions))))
    missing = {pair for places in grid for pair in combinations(enumerate(places), 2)}
    unmarked = set()
    while missing:
        best = max(grid, key=lambda places: len(_pairs(places) & missing))
        missing -= _pairs(best)
        unmarked.add(best)
    return [
        _parameters(
            *(values[place] for values, place in zip(dimensions, places, strict=True)),
            is_full=places not in unmarked,
        )
        for places in grid
    ]


def _pairs(places: tuple[int, ...]) -> set[Any]:
    return set(combinations(enumerate(places), 2))


def _parameters(*values: Any, is_full: bool) -> Any:
    """Return the values, and those of tuples among them, as parameters of one test."""
    flat = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return pytest.param(*flat, marks=[pytest.mark.full] if is_full else [])

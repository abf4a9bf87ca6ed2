"""Which parts of grids `make test` runs."""

from itertools import combinations, product

from tests.grid import full, in_turns, pairwise


def unmarked(parameters):
    return [case.values for case in parameters if not case.marks]


def test_all_are_full() -> None:
    assert [case.values for case in full(["a", ("b", 1)])] == [("a",), ("b", 1)]
    assert unmarked(full("ab")) == []


def test_options_take_turns() -> None:
    grid = in_turns(["a", ("b", "c"), "d"], [1, 2], first=1)
    assert unmarked(grid) == [("a", 2), ("b", "c", 1), ("d", 2)]
    assert len(grid) == 6


def test_every_pair_of_values_is_unmarked_once_at_least() -> None:
    dimensions = ("abc", (1, 2, 3), (True, False))
    grid = pairwise(*dimensions)
    assert [case.values for case in grid] == list(product(*dimensions))
    for some in combinations(range(3), 2):
        pairs = {tuple(values[i] for i in some) for values in unmarked(grid)}
        assert pairs == set(product(*(dimensions[i] for i in some)))
    assert len(unmarked(grid)) == 9

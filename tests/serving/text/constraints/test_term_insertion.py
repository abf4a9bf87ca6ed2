"""A term comes where it is asked for, spelt for what stands before it."""

import numpy as np
import pytest

from serving.text.constraints.term_insertion import TermInsertion

STOP, INNER, ELIDED = 2, 3, 4
SPACED, BARE = (10, 11), (12,)


def insertion(num_free: int, *following: int) -> TermInsertion:
    unwanted = np.array([STOP])
    return TermInsertion(
        num_free, SPACED, BARE, following, frozenset({ELIDED}), np.array([INNER]), unwanted
    )


def allowed_after(constraint: TermInsertion, *token_ids: int) -> set[int]:
    matcher = constraint.start()
    for token_id in token_ids:
        mask = np.zeros(20, bool)
        matcher.fill_mask(mask)
        assert mask[token_id]
        matcher.accept(token_id)
    matcher = matcher.fork()
    mask = np.zeros(20, bool)
    matcher.fill_mask(mask)
    return set(np.flatnonzero(mask).tolist())


ANY = set(range(20))


@pytest.mark.parametrize(
    ("num_free", "following", "written", "allowed"),
    [
        (0, (), (), {10}),
        (0, (), (10,), {11}),
        (0, (), (10, 11), ANY - {INNER}),
        (0, (), (10, 11, 5, INNER), ANY),
        (1, (), (), ANY - {STOP}),
        (1, (), (5,), {10}),
        (1, (), (ELIDED,), {12}),
        (1, (), (ELIDED, 12), ANY - {INNER}),
        (2, (), (ELIDED,), ANY - {STOP}),
        (2, (), (ELIDED, 5), {10}),
        (0, (7, STOP), (10, 11), {7}),
        (1, (7, STOP), (ELIDED, 12, 7), {STOP}),
    ],
)
def test_what_may_come(
    num_free: int, following: tuple[int, ...], written: tuple[int, ...], allowed: set[int]
) -> None:
    assert allowed_after(insertion(num_free, *following), *written) == allowed

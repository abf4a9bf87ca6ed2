"""What came after the same tokens before is what is drafted."""

import numpy as np
import pytest

from serving.engine.speculation.lookup import NONE, look_up

NOTHING = [NONE] * 3


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2], [3, 4, 5]),
        ([1, 2, 3, 4, 1, 2, 5, 6, 1, 2], [5, 6, 1]),  # the last place counts
        ([9, 1, 2, 3, 4, 8, 1, 2, 5, 6, 9, 1, 2], [3, 4, 8]),  # but three equal tokens before two
        ([1, 2, 3, 4], NOTHING),
        ([1, 2, 3, 4, 2], NOTHING),  # one equal token is not enough
        ([7, 7, 7], [7, 7, 7]),
        ([5, 1, 2, 1, 2], [1, 2, 1]),  # they go round
        ([4, 4], NOTHING),
        ([4], NOTHING),
    ],
)
def test_a_row_goes_on_as_it_did_before(known: list[int], expected: list[int]) -> None:
    [drafted] = look_up(np.array([known]), np.array([len(known)]), 3)
    assert drafted.tolist() == expected


def test_rows_know_nothing_of_each_other_or_of_what_lies_beyond_their_end() -> None:
    tokens = np.array([[1, 2, 3, 1, 2, 9, 9], [9, 8, 1, 2, 3, 9, 8], [1, 2, 1, 2, 1, 2, 1]])
    drafted = look_up(tokens, np.array([5, 7, 2], np.int32), 3)
    assert drafted.tolist() == [[3, 1, 2], [1, 2, 3], NOTHING]


def test_drafts_are_those_of_a_search_step_by_step() -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(0, 4, (200, 30))
    lengths = random.integers(1, 31, 200)
    drafted = look_up(tokens, lengths, 5)
    for row, length, found in zip(tokens.tolist(), lengths, drafted.tolist(), strict=True):
        assert found == searched(row[:length], 5)


def searched(known: list[int], count: int) -> list[int]:
    for size in (3, 2):
        for end in range(len(known) - 1, size - 1, -1):
            if len(known) > size and known[end - size : end] == known[-size:]:
                followers = known[end:]
                return [followers[i % len(followers)] for i in range(count)]
    return [NONE] * count

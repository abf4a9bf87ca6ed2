"""Tests that what came after the same tokens before is what is drafted."""

import numpy as np
import pytest

from serving.engine.decoding.speculative_decoding import Lookup


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2], [3, 4, 5]),
        ([1, 2, 3, 4, 1, 2, 5, 6, 1, 2], [5, 6, 1]),  # the last place counts
        ([9, 1, 2, 3, 4, 8, 1, 2, 5, 6, 9, 1, 2], [3, 4, 8]),  # but three equal tokens before two
        ([1, 2, 3, 4], []),
        ([1, 2, 3, 4, 2], []),  # one equal token is not enough
        ([7, 7, 7], [7, 7, 7]),
        ([5, 1, 2, 1, 2], [1, 2, 1]),  # they go round
        ([4, 4], []),
        ([4], []),
    ],
)
def test_a_row_goes_on_as_it_did_before(token_ids: list[int], expected: list[int]) -> None:
    assert Lookup(token_ids).draft(3) == expected


def test_drafts_are_those_of_a_search_token_by_token() -> None:
    tokens = np.random.default_rng(0).integers(0, 4, 300).tolist()
    lookup = Lookup(())
    for end, token_id in enumerate(tokens):
        assert lookup.draft(5) == search_draft(tokens[:end], 5)
        lookup.add(token_id)


def search_draft(token_ids: list[int], count: int) -> list[int]:
    for size in (3, 2):
        for end in range(len(token_ids) - 1, size - 1, -1):
            if token_ids[end - size : end] == token_ids[-size:]:
                followers = token_ids[end:]
                return [followers[i % len(followers)] for i in range(count)]
    return []

"""Padded heads: every number has its place, pairs stay pairs, and zeros are all that is added."""

import numpy as np
import pytest

from export.layers.basic import head_layout


@pytest.mark.parametrize("size", range(2, 65))
def test_pairs_stay_pairs_and_the_rest_is_kept(size: int) -> None:
    for pairs in range(size // 2 + 1):
        layout = head_layout(size, pairs)
        places, apart = layout.places, -(-pairs // 8) * 8
        assert layout.padded_size % (16 if pairs else 8) == 0
        assert len({*places}) == layout.size == size
        assert max(places) < layout.padded_size >= 2 * apart
        assert all(places[i] == i and places[i + pairs] == i + apart for i in range(pairs))
        still = [place % apart for place in places[2 * pairs :] if place < 2 * apart]
        assert all(pair >= pairs for pair in still), "they would be rotated"


def test_weights_are_spread_head_by_head() -> None:
    weight = np.arange(1, 25, dtype=np.float32).reshape(12, 2)
    spread = head_layout(6, 3).spread(weight).reshape(2, 16, 2)
    assert np.array_equal(spread[:, [0, 1, 2, 8, 9, 10]], weight.reshape(2, 6, 2))
    assert np.count_nonzero(spread) == weight.size


def test_heads_that_fit_are_left_alone() -> None:
    weight = np.ones((32, 4), np.float32)
    assert head_layout(16, 8).spread(weight) is weight
    assert head_layout(8).spread(weight) is weight

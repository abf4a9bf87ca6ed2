"""Times of tokens by attention are those of openai/whisper, timing.py, written as plain loops."""

import time

import numpy as np
import pytest

from serving.pipelines.transcription.alignment import (
    align_tokens,
    filter_median,
    find_path_starts,
    stack_attention,
)


def median_by_loops(values: np.ndarray, width: int) -> np.ndarray:
    """Return the median of `width` values around each one; the ends are mirrored."""
    radius, length = width // 2, len(values)
    result = np.empty_like(values)
    for place in range(length):
        around = []
        for shift in range(-radius, radius + 1):
            other = abs(place + shift)
            around.append(values[2 * (length - 1) - other if other >= length else other])
        result[place] = sorted(around)[radius]
    return result


def warp_by_loops(costs: np.ndarray) -> list[int]:
    """Return the column at which the path of `dtw_cpu` and `backtrace` enters each row."""
    num_rows, num_columns = costs.shape
    total = np.full((num_rows + 1, num_columns + 1), np.inf)
    trace = np.full((num_rows + 1, num_columns + 1), -1)
    total[0, 0] = 0
    for j in range(1, num_columns + 1):
        for i in range(1, num_rows + 1):
            c0, c1, c2 = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            if c0 < c1 and c0 < c2:
                best, way = c0, 0
            elif c1 < c0 and c1 < c2:
                best, way = c1, 1
            else:
                best, way = c2, 2
            total[i, j] = costs[i - 1, j - 1] + best
            trace[i, j] = way
    trace[0, :], trace[:, 0] = 2, 1
    i, j = num_rows, num_columns
    path = []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        i, j = (i - (trace[i, j] != 2), j - (trace[i, j] != 1))
    path.reverse()
    return [next(column for i, column in path if i == row) for row in range(num_rows)]


@pytest.mark.parametrize("length", [1, 3, 4, 7, 50])
def test_the_median_is_that_of_sorted_neighbours(length: int) -> None:
    values = np.random.default_rng(length).standard_normal((2, 3, length)).astype(np.float32)
    filtered = filter_median(values)
    if length <= 3:
        assert np.array_equal(filtered, values)
        return
    for head in range(2):
        for token in range(3):
            assert np.array_equal(filtered[head, token], median_by_loops(values[head, token], 7))


@pytest.mark.parametrize("seed", range(8))
def test_the_path_is_the_cheapest_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    num_rows, num_columns = random.integers(1, 30, 2)
    costs = random.standard_normal((num_rows, num_columns))
    assert find_path_starts(costs).tolist() == warp_by_loops(costs)


def test_more_rows_than_columns_share_columns() -> None:
    costs = np.random.default_rng(3).standard_normal((12, 4))
    starts = find_path_starts(costs)
    assert starts.tolist() == warp_by_loops(costs)
    assert (np.diff(starts) >= 0).all() and starts[0] == 0


def speak(heads: int, tokens: int, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy attention along a known path, and the path's starts."""
    random = np.random.default_rng(0)
    starts = np.sort(random.choice(np.arange(1, positions), tokens - 1, replace=False))
    starts = np.concatenate([[0], starts])
    ends = np.append(starts[1:], positions)
    weights = random.random((heads, tokens, positions)).astype(np.float32) * 0.2
    for token in range(tokens):
        weights[:, token, starts[token] : ends[token]] += 1
    return weights / weights.sum(-1, keepdims=True), starts


def test_tokens_begin_where_attention_moves_to_them() -> None:
    weights, starts = speak(heads=3, tokens=12, positions=240)
    assert np.abs(align_tokens(weights) - starts).max() <= 2


def test_alignment_equals_that_by_loops() -> None:
    weights = np.random.default_rng(5).random((4, 9, 40)).astype(np.float32)
    normalised = np.empty_like(weights)
    for head in range(4):
        for position in range(40):
            column = weights[head, :, position]
            normalised[head, :, position] = (column - column.mean()) / column.std()
    for head in range(4):
        for token in range(9):
            normalised[head, token] = median_by_loops(normalised[head, token], 7)
    assert align_tokens(weights).tolist() == warp_by_loops(-normalised.mean(axis=0))


def test_attention_that_is_the_same_for_all_tokens_is_no_error() -> None:
    weights = np.full((2, 3, 10), 0.1, np.float32)
    assert (np.diff(align_tokens(weights)) >= 0).all()


def test_a_full_window_takes_a_fraction_of_a_second() -> None:
    weights, _ = speak(heads=10, tokens=224, positions=1500)
    begin = time.process_time()
    align_tokens(weights)
    assert time.process_time() - begin < 5


def test_attention_of_several_queries_is_stacked_by_heads() -> None:
    def piece(value: float, heads: int, rows: int = 1) -> np.ndarray:
        array = np.full((1, heads, rows, 5), value, np.float32)
        array[:, :, :-1] = -1  # tokens that were read before
        return array

    steps = [((piece(1, 2, rows=3),), (piece(2, 1, rows=3),)), ((piece(3, 2),), (piece(4, 1),))]
    stacked = stack_attention(steps)
    assert stacked.shape == (3, 2, 5)
    assert stacked[:, :, 0].tolist() == [[1, 3], [1, 3], [2, 4]]

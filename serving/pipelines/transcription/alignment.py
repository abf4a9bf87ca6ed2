"""Finds when each token is spoken, by the decoder's attention over the sound.

The path through tokens and positions that collects most attention is found by dynamic time warping,
as in openai/whisper, `find_alignment` of timing.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from serving.requests.request import AttentionPieces

Floats = np.ndarray[Any, np.dtype[np.float32]]
Costs = np.ndarray[Any, np.dtype[np.float64]]
Positions = np.ndarray[Any, np.dtype[np.int64]]

FILTER_WIDTH = 7  # positions of the median filter
# Exchanges that bring the median of seven values to the fourth place.
_EXCHANGES = (
    *((0, 5), (0, 3), (1, 6), (2, 4), (0, 1), (3, 5), (2, 6)),
    *((2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4)),
)


def align_tokens(weights: Floats) -> Positions:
    """Return the position at which each token begins: i64 [tokens], ascending.

    weights: f32 [heads, tokens, positions], the attention of the steps that chose these tokens.
    """
    mean = weights.mean(axis=1, keepdims=True)
    deviation = weights.std(axis=1, keepdims=True)
    normalised = (weights - mean) / np.where(deviation == 0, 1, deviation)
    return find_path_starts(-filter_median(normalised).mean(axis=0))


def filter_median(values: Floats) -> Floats:
    """Return the median of the seven values around each one on the last axis, which is mirrored at
    its ends. An axis that is too short to be mirrored is not filtered.
    """
    length, radius = values.shape[-1], FILTER_WIDTH // 2
    if length <= radius:
        return values
    padding = [(0, 0)] * (values.ndim - 1) + [(radius, radius)]
    padded = np.pad(values, padding, mode="reflect")
    shifted = [padded[..., shift : shift + length] for shift in range(FILTER_WIDTH)]
    for low, high in _EXCHANGES:
        shifted[low], shifted[high] = (
            np.minimum(shifted[low], shifted[high]),
            np.maximum(shifted[low], shifted[high]),
        )
    return shifted[radius]


def find_path_starts(costs: Costs | Floats) -> Positions:
    """Return the column at which the cheapest path enters each row: i64 [rows].

    costs: [rows, columns]. The path leads from the first corner to the last; a step goes to the
        next row, the next column, or both.
    """
    totals = _path_costs(costs)
    row, column = costs.shape
    starts = np.zeros(row, np.int64)
    while row > 0 and column > 0:
        starts[row - 1] = column - 1
        diagonal = totals[row - 1, column - 1]
        above, before = totals[row - 1, column], totals[row, column - 1]
        if diagonal < above and diagonal < before:
            row, column = row - 1, column - 1
        elif above < diagonal and above < before:
            row -= 1
        else:
            column -= 1
    return starts


def _path_costs(costs: Costs | Floats) -> Costs:
    """Return the cost of the cheapest path to each cell: f64 [rows + 1, columns + 1], where the
    first row and column are outside.

    A path enters a row at one column and goes along it: the cost up to a column is the sum of the
    row so far, and the least of what the entries up to there cost beyond such sums.
    """
    num_rows, num_columns = costs.shape
    totals = np.full((num_rows + 1, num_columns + 1), np.inf)
    totals[0, 0] = 0
    for number, row in enumerate(costs.astype(np.float64)):
        entry = np.minimum(totals[number, :-1], totals[number, 1:])
        sums = np.cumsum(row)
        beyond = np.minimum.accumulate(entry - (sums - row))
        totals[number + 1, 1:] = sums + beyond
    return totals


def stack_attention(steps: Sequence[AttentionPieces]) -> Floats:
    """Return the attention of steps as one array: f32 [heads, steps, positions].

    steps: the pieces of each; see `AttentionPieces`. Of a step that read several tokens the last
        one chose the next.
    """
    rows = [
        np.concatenate(
            [arrays[-1][:, :, -1].reshape(-1, arrays[-1].shape[-1]) for arrays in pieces]
        )
        for pieces in steps
    ]
    return np.stack(rows, axis=1)

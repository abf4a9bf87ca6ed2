"""Shares a translation's words out among marks: each gets a run of words that came of its own, or a
place between words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.text.alignment import Array

_EMPTY_COST = 10.0  # of a mark without a word; it has one where there are enough
_NEVER = -1e9


@dataclass(frozen=True, slots=True)
class Runs:
    """Says which words belong to each of several marks, and how well they do."""

    lows: tuple[int, ...]
    highs: tuple[int, ...]


def best_runs(within: Array, outside: Array) -> Runs:
    """Return the runs of words, in the order of the marks, whose words together belong most to the
    marks that they are given to, and those between to none.

    within: how much each word belongs to each mark [marks, words].
    outside: how much it belongs to none, before the first mark, after the first, and so on
        [marks + 1, words].
    """
    num_marks, num_words = within.shape
    gains = np.empty((2 * num_marks + 1, num_words))
    gains[0::2], gains[1::2] = outside, within
    choices = [_Choices(column) for column in gains.T.tolist()]
    scores = [0.0] + [_NEVER] * (2 * num_marks)
    for choice in choices:
        scores = choice.follow(scores)
    last = 2 * num_marks
    _, state = max((scores[last], last), _entered(scores)[last])
    states = []
    for choice in reversed(choices):
        states.append(state)
        state = choice.came_from[state]
    return _runs(states[::-1], num_marks)


class _Choices:
    """Holds for one word where the best way to each state came from.

    States are, in their order: before the first mark, in it, between it and the second, and so on.
    """

    def __init__(self, gains: Sequence[float]) -> None:
        self._gains = gains
        self.came_from: list[int] = []

    def follow(self, scores: Sequence[float]) -> list[float]:
        """Return the best scores of being in each state at this word, by those at the last."""
        entered = _entered(scores)
        best = []
        for state, gain in enumerate(self._gains):
            score, origin = max((scores[state], state), entered[state])
            self.came_from.append(origin)
            best.append(score + gain)
        return best


def _entered(scores: Sequence[float]) -> list[tuple[float, int]]:
    """Return for each state the best way to get there from an earlier one, without a word in any
    state between.
    """
    best, entered = (_NEVER, 0), []
    for state, score in enumerate(scores):
        entered.append(best)
        skipped = (best[0] - _EMPTY_COST * (state % 2), best[1])
        best = max(skipped, (score, state))
    return entered


def _runs(states: Sequence[int], num_marks: int) -> Runs:
    lows, highs = [], []
    for mark in range(num_marks):
        state = 2 * mark + 1
        lows.append(sum(each < state for each in states))
        highs.append(sum(each <= state for each in states))
    return Runs(tuple(lows), tuple(highs))


def cheapest_places(costs: Array) -> list[int]:
    """Return a place for each break, in rising order, so that the sum of their costs is least.

    costs: of each break at each place [breaks, places]; there are no more breaks than places.
    """
    least_before = np.zeros(costs.shape[1] + 1)  # of the breaks so far, all before each place
    ways = []
    for own in costs:
        ways.append(least_before[:-1] + own)
        least_before = np.concatenate(([np.inf], np.minimum.accumulate(ways[-1])))
    places: list[int] = []
    end = costs.shape[1]
    for way in reversed(ways):
        end = int(np.argmin(way[:end]))
        places.append(end)
    return places[::-1]

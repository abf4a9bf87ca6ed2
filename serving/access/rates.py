"""Limits how much may be asked for in a time: the token bucket.

Buckets are known in networking as in Tanenbaum's "Computer Networks", 5.4: what was not used adds
up, to no more than the bucket holds.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]
_SECONDS_OF_BURST = 1.0


class Bucket:
    """Fills at a steady rate up to its capacity; each use takes from it.

    What is only known afterwards, as how many tokens an answer has, is taken then: the level may
    fall below zero, and nothing passes until it has risen again.
    """

    def __init__(self, per_second: float, capacity: float, clock: Clock = time.monotonic) -> None:
        self._per_second, self._capacity, self._clock = per_second, capacity, clock
        self._level, self._filled_at = capacity, clock()

    def seconds_until(self, amount: float) -> float:
        """Return how long it takes until it holds so much; 0 where it does."""
        self._fill()
        return max(0.0, (min(amount, self._capacity) - self._level) / self._per_second)

    def take(self, amount: float) -> None:
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        risen = self._level + (now - self._filled_at) * self._per_second
        self._level, self._filled_at = min(self._capacity, risen), now


def requests_bucket(per_second: float, clock: Clock = time.monotonic) -> Bucket:
    """Let as many requests come at once as a second allows, one at least."""
    return Bucket(per_second, max(1.0, per_second * _SECONDS_OF_BURST), clock)


def tokens_bucket(per_minute: float, clock: Clock = time.monotonic) -> Bucket:
    """Let the tokens of a minute come at once."""
    return Bucket(per_minute / 60, per_minute, clock)

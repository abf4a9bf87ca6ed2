"""Token buckets: limits of a rate that let a burst through."""

import time
from collections.abc import Callable

Clock = Callable[[], float]


class TokenBucket:
    """A token bucket: it fills at a steady rate up to its capacity.

    Amounts that are known only at the end, such as the tokens of an answer, are taken then. So the
    level may fall below zero; then nothing more is admitted until it has risen.
    """

    def __init__(self, per_second: float, capacity: float, clock: Clock = time.monotonic) -> None:
        self._per_second, self._capacity, self._clock = per_second, capacity, clock
        self._level, self._filled_at = capacity, clock()

    def seconds_until(self, amount: float) -> float:
        """Return the time until the level is at least `amount`; 0 if it already is."""
        self._fill()
        return max(0.0, (min(amount, self._capacity) - self._level) / self._per_second)

    def take(self, amount: float) -> None:
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        risen = self._level + (now - self._filled_at) * self._per_second
        self._level, self._filled_at = min(self._capacity, risen), now


def requests_bucket(per_second: float, clock: Clock = time.monotonic) -> TokenBucket:
    """Return a bucket that admits the requests of a second at once, but at least one."""
    return TokenBucket(per_second, max(1.0, per_second), clock)


def tokens_bucket(per_minute: float, clock: Clock = time.monotonic) -> TokenBucket:
    """Return a bucket that admits the tokens of a minute at once."""
    return TokenBucket(per_minute / 60, per_minute, clock)

"""Token buckets: limits of a rate that let a burst through."""

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rate:
    """How a bucket fills. capacity: what is admitted at once."""

    per_second: float
    capacity: float

    def fill(self, level: float, seconds: float) -> float:
        """Return the level after some seconds."""
        return min(self.capacity, level + max(0.0, seconds) * self.per_second)


class TokenBucket:
    """A token bucket: it fills at a steady rate up to its capacity.

    Amounts that are known only at the end, such as the tokens of an answer, are taken then. So the
    level may fall below zero; then nothing more is admitted until it has risen.
    """

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._level, self._filled_at = rate.capacity, clock()

    def seconds_until(self, amount: float) -> float:
        """Return the time until the level is at least `amount`; 0 if it already is."""
        self._fill()
        missing = min(amount, self._rate.capacity) - self._level
        return max(0.0, missing / self._rate.per_second)

    def take(self, amount: float) -> None:
        self._fill()
        self._level -= amount

    def lower_to(self, level: float) -> None:
        """Lower the level, if it is higher."""
        self._fill()
        self._level = min(self._level, level)

    def _fill(self) -> None:
        now = self._clock()
        self._level = self._rate.fill(self._level, now - self._filled_at)
        self._filled_at = now


def requests_rate(per_second: float) -> Rate:
    """Return a rate that admits the requests of a second at once, but at least one."""
    return Rate(per_second, max(1.0, per_second))


def tokens_rate(per_minute: float) -> Rate:
    """Return a rate that admits the tokens of a minute at once."""
    return Rate(per_minute / 60, per_minute)

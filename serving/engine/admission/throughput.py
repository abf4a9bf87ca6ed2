"""Measures how much work is done a second while work waits."""

_MIN_SECONDS = 0.25
_MAX_SECONDS = 4.0


class Throughput:
    """Forgets by halves, so that it follows what the last seconds were like. Time in which nobody
    waits says nothing of how much could be done in it.
    """

    def __init__(self) -> None:
        self._work = 0.0
        self._seconds = 0.0
        self._last: float | None = None

    @property
    def work_per_second(self) -> float | None:
        """Return the rate, None while there is too little to tell from."""
        if self._seconds < _MIN_SECONDS or not self._work:
            return None
        return self._work / self._seconds

    def done(self, work: int, now: float, others_wait: bool) -> None:
        """Count a generation that has ended now."""
        if self._last is not None:
            self._work += work
            self._seconds += now - self._last
        if self._seconds > _MAX_SECONDS:
            self._work, self._seconds = self._work / 2, self._seconds / 2
        self._last = now if others_wait else None

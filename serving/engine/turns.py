"""Lets the engines of one replica share its processor: by turns, one step each.

Start-time fair queueing (Goyal, Vin and Cheng 1997): every engine has a virtual time, which its
steps move on by the seconds they take, and whoever is furthest behind is next. Engines that always
have work get equal shares of time, whatever a step of theirs costs; one that was idle has saved up
nothing, but is next as soon as the step that runs is done.
"""

import threading
import time
from types import TracebackType


class FairShare:
    """Lets so many engines step at once."""

    def __init__(self, num_at_once: int) -> None:
        self._has_changed = threading.Condition()
        self._num_free = num_at_once
        self._now = 0.0  # virtual: when the step that began last did
        self._waiting: list[Turns] = []

    def join(self) -> "Turns":
        """Return the turns of one more engine."""
        return Turns(self)

    def begin(self, turns: "Turns") -> None:
        with self._has_changed:
            turns.starts_at = max(self._now, turns.ends_at)
            self._waiting.append(turns)
            while not self._is_next(turns):
                self._has_changed.wait()
            self._waiting.remove(turns)
            self._num_free -= 1
            self._now = max(self._now, turns.starts_at)
            if self._num_free:
                self._has_changed.notify_all()

    def end(self, turns: "Turns", seconds: float) -> None:
        with self._has_changed:
            turns.ends_at = turns.starts_at + seconds
            self._num_free += 1
            self._has_changed.notify_all()

    def _is_next(self, turns: "Turns") -> bool:
        return self._num_free > 0 and turns is min(self._waiting, key=lambda each: each.starts_at)


class Turns:
    """Waits for an engine's turn (`with turns:` around a step). Times are virtual, in seconds."""

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._began = 0.0
        self.starts_at = self.ends_at = 0.0

    def __enter__(self) -> None:
        self._share.begin(self)
        self._began = time.perf_counter()

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._share.end(self, time.perf_counter() - self._began)

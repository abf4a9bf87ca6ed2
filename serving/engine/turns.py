"""Lets the engines of one replica share its processor: by turns, of one step or a few.

Start-time fair queueing (Goyal, Vin and Cheng 1997): every model has a virtual time, which its
engines' steps move on by the processor time they take, and whoever is furthest behind is next.
Models that always have work get equal shares of time, whatever a step of theirs costs and however
many engines they have; one that was idle has saved up nothing, but is next when there is room. The
two lanes of one model divide its share by their weights.
"""

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import Protocol


class FairShare:
    """Lets engines step at once while so many CPUs have enough for all of their threads."""

    def __init__(self, num_cpus: int) -> None:
        self._has_changed = threading.Condition()
        self._num_cpus = self._num_free = num_cpus
        self._now = 0.0  # virtual: when the step that began last did
        self._waiting: list[Turns] = []

    def join(
        self, num_engines: int = 1, threads: int = 1, weight: Callable[[], float] = lambda: 1.0
    ) -> "list[Turns]":
        """Return the turns of one more model, or of one of its lanes, for each of its engines.

        weight: the part of the model's share that is the lane's now.
        """
        account = Account(weight)
        threads = min(threads, self._num_cpus)
        return [Turns(self, account, threads) for _ in range(num_engines)]

    def begin(self, turns: "Turns") -> None:
        with self._has_changed:
            turns.starts_at = max(self._now, turns.account.time)
            self._waiting.append(turns)
            while not self._is_next(turns):
                self._has_changed.wait()
            self._waiting.remove(turns)
            self._num_free -= turns.threads
            turns.starts_at = turns.place
            self._now = max(self._now, turns.starts_at)
            if self._num_free:
                self._has_changed.notify_all()

    def goes_on(self, turns: "Turns", seconds: float) -> bool:
        """Charge a turn so far, and tell whether it may take one more step at once: nobody who
        waits is further behind. If it let go between short steps, each would wait for a long one.
        """
        with self._has_changed:
            self._charge(turns, seconds)
            turns.starts_at = turns.account.time
            if any(other.place <= turns.place for other in self._waiting):
                return False
            self._now = max(self._now, turns.starts_at)
            return True

    def end(self, turns: "Turns", seconds: float) -> None:
        with self._has_changed:
            self._charge(turns, seconds)
            self._num_free += turns.threads
            self._has_changed.notify_all()

    def _charge(self, turns: "Turns", seconds: float) -> None:
        account = turns.account
        cost = seconds * turns.threads / account.weight()
        account.time = max(account.time, turns.starts_at) + cost

    def _is_next(self, turns: "Turns") -> bool:
        is_first = turns is min(self._waiting, key=lambda each: each.place)
        return is_first and self._num_free >= turns.threads


class Account:
    """Holds the virtual time of one model or lane, in seconds of one CPU."""

    def __init__(self, weight: Callable[[], float]) -> None:
        self.weight = weight
        self.time = 0.0


class TakesTurns(Protocol):
    """Is entered around the steps of a turn; between them it says whether there is one more."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    def goes_on(self) -> bool: ...


class Unshared(nullcontext[None]):
    """Is for an engine that shares its processor with no other."""

    def goes_on(self) -> bool:
        return True


class Turns:
    """Waits for an engine's turn (`with turns:` around its steps)."""

    def __init__(self, share: FairShare, account: Account, threads: int) -> None:
        self._share = share
        self.account, self.threads = account, threads
        self._began = 0.0
        self.starts_at = 0.0

    @property
    def place(self) -> float:
        """Return when its turn comes. Other engines on its account may have had theirs since it
        began to wait.
        """
        return max(self.starts_at, self.account.time)

    def __enter__(self) -> None:
        self._share.begin(self)
        self._began = time.perf_counter()

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._share.end(self, self._seconds())

    def goes_on(self) -> bool:
        return self._share.goes_on(self, self._seconds())

    def _seconds(self) -> float:
        """Return how long it took since it was asked last."""
        before, self._began = self._began, time.perf_counter()
        return self._began - before

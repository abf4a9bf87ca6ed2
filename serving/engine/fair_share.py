"""Share processors between the engines of a replica.

Engines take turns of one or a few steps by start-time fair queueing (Goyal, Vin and Cheng, 1997).
Each model has a virtual time that advances by the processor time of its steps, and the model with
the lowest virtual time is next. Busy models get equal shares, independent of the length of their
steps and the number of their engines. A model that was idle gets no credit for that time, but is
next when a processor is free. The two batches of one model divide its share by their weights.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType


class FairShare:
    """Shares processors: engines run steps at the same time if there are enough CPUs for all of
    their threads.
    """

    def __init__(self, num_cpus: int) -> None:
        # An account's weight takes its scheduler's lock within this one's. That is safe: no caller
        # holds a scheduler's lock when it begins or ends a turn.
        self._has_changed = threading.Condition()
        self._num_cpus = self._num_free = num_cpus
        self._now = 0.0  # the start tag of the step that began last
        self._waiting: list[ProcessorTurns] = []
        self._running: list[ProcessorTurns] = []

    def join(
        self, num_engines: int = 1, threads: int = 1, weight: Callable[[], float] = lambda: 1.0
    ) -> "list[ProcessorTurns]":
        """Return a ProcessorTurns for each engine of a new model, or of its jobs of one size.

        weight: returns the current fraction of the model's share for jobs of this size.
        """
        account = Account(weight)
        threads = min(threads, self._num_cpus)
        return [ProcessorTurns(self, account, threads) for _ in range(num_engines)]

    def has_few_others(self, turns: "ProcessorTurns", most: int) -> bool:
        """Return whether at most so many others have a turn or wait for one, all of one account."""
        with self._has_changed:
            others = [other for other in (*self._waiting, *self._running) if other is not turns]
            is_one_account = all(other.account is turns.account for other in others)
            return is_one_account and len(others) <= most

    def acquire(self, turns: "ProcessorTurns") -> None:
        with self._has_changed:
            turns.start_tag = max(self._now, turns.account.time)
            self._waiting.append(turns)
            while not self._is_next(turns):
                self._has_changed.wait()
            self._waiting.remove(turns)
            self._running.append(turns)
            self._num_free -= turns.threads
            turns.start_tag = turns.next_start_tag
            self._now = max(self._now, turns.start_tag)
            if self._num_free:
                self._has_changed.notify_all()

    def may_continue(self, turns: "ProcessorTurns", seconds: float) -> bool:
        """Charge the turn so far, and return whether it may take one more step: no waiting engine
        has a lower virtual time. If it released the processor between short steps, each of them
        would wait for a long step.
        """
        with self._has_changed:
            self._charge(turns, seconds)
            turns.start_tag = turns.account.time
            if any(other.next_start_tag <= turns.next_start_tag for other in self._waiting):
                return False
            self._now = max(self._now, turns.start_tag)
            return True

    def release(self, turns: "ProcessorTurns", seconds: float) -> None:
        with self._has_changed:
            self._charge(turns, seconds)
            self._running.remove(turns)
            self._num_free += turns.threads
            self._has_changed.notify_all()

    def _charge(self, turns: "ProcessorTurns", seconds: float) -> None:
        account = turns.account
        cost = seconds * turns.threads / account.weight()
        account.time = max(account.time, turns.start_tag) + cost

    def _is_next(self, turns: "ProcessorTurns") -> bool:
        is_first = turns is min(self._waiting, key=lambda waiting: waiting.next_start_tag)
        return is_first and self._num_free >= turns.threads


class Account:
    """The virtual time of one model, or of its jobs of one size, in seconds of one CPU."""

    def __init__(self, weight: Callable[[], float]) -> None:
        self.weight = weight
        self.time = 0.0


class ProcessorTurns:
    """A context manager for an engine's steps: it waits until the engine may use the processors.

    threads: of the next turn; at most as many as there are processors.
    """

    def __init__(self, share: FairShare, account: Account, threads: int) -> None:
        self._share = share
        self.account, self.threads = account, threads
        self._lap_started = 0.0
        self.start_tag = 0.0

    @property
    def next_start_tag(self) -> float:
        """Return the virtual time of the next turn. Other engines on the same account may have had
        turns since this one began to wait.
        """
        return max(self.start_tag, self.account.time)

    def has_few_others(self, most: int) -> bool:
        """Return whether at most so many other engines, all of this model, have a turn or wait for
        one.
        """
        return self._share.has_few_others(self, most)

    def __enter__(self) -> None:
        self._share.acquire(self)
        self._lap_started = time.perf_counter()

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._share.release(self, self._lap_seconds())

    def may_continue(self) -> bool:
        """Return whether the turn may take one more step."""
        return self._share.may_continue(self, self._lap_seconds())

    def _lap_seconds(self) -> float:
        """Return the seconds since the last call."""
        started, self._lap_started = self._lap_started, time.perf_counter()
        return self._lap_started - started

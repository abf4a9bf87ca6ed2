"""Run an engine on a thread, and share processors between the engines of a replica.

Engines take turns of one or a few steps by start-time fair queueing (Goyal, Vin and Cheng, 1997).
Each model has a virtual time that advances by the processor time of its steps, and the model with
the lowest virtual time is next. Busy models get equal shares, independent of the length of their
steps and the number of their engines. A model that was idle gets no credit for that time, but is
next when a processor is free. The two batches of one model divide its share by their weights.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol

from serving.engine.measures import EngineStats, StepStats
from serving.engine.scheduling.fair_queue import JobSize
from serving.engine.scheduling.scheduler import Scheduler
from serving.requests.request import Event, GenerationRequest

logger = logging.getLogger(__name__)

Command = Callable[[], None]


class Steps(Protocol):
    """An engine that is run step by step: `Engine` or `EncodingEngine`."""

    scheduler: Scheduler
    job_size: JobSize
    step_stats: StepStats

    @property
    def has_work(self) -> bool: ...

    def stats(self) -> EngineStats: ...

    def warm_up(self) -> None: ...

    def submit(self, *requests: GenerationRequest) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def cancel_all(self) -> None: ...

    def step(self) -> list[Event]: ...


class Listener(Protocol):
    """Is called by workers, on their threads."""

    def on_step(self, worker: "Worker", events: Sequence[Event], step_seconds: float) -> None: ...

    def on_end(self, worker: "Worker", has_failed: bool) -> None: ...


class TakesTurns(Protocol):
    """A context manager that is entered for the steps of a turn. Between steps it decides whether
    there is one more.
    """

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        cls: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    def goes_on(self) -> bool: ...


class Worker:
    """The thread of an engine: it runs steps while there is work, else it waits for a command."""

    def __init__(self, engine: Steps, turns: TakesTurns, listener: Listener) -> None:
        """turns: context manager that is entered for the steps, if engines share processors."""
        self.engine = engine
        self.stats = engine.stats()
        self.warmed_up: Future[None] = Future()
        self._turns, self._listener = turns, listener
        self._inbox: SimpleQueue[Command] = SimpleQueue()
        self._is_stopping = False
        self._is_resting = False
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended, if it was started."""
        if self._thread.ident is not None:
            self._thread.join()

    def tell(self, command: Command) -> None:
        """Run a command on the engine's thread, after the current step."""
        self._inbox.put(command)

    def stop(self) -> None:
        """Abort all requests and end the thread, after the current step."""
        self.tell(self._stop)

    def wake(self) -> bool:
        """Make the engine look for work if it is idle; return whether it was idle."""
        if not self._is_resting:
            return False
        self._is_resting = False
        self.tell(_nothing)
        return True

    # From here on, everything runs on the engine's thread.

    def _serve(self) -> None:
        has_failed = False
        try:
            self._warm_up()
            while not self._is_stopping:
                if self.engine.has_work:
                    self._take_turn()
                else:
                    self._rest()
        except BaseException as error:
            has_failed = True
            logger.critical("an engine's thread has died", exc_info=error)
        finally:
            self._listener.on_end(self, has_failed)

    def _warm_up(self) -> None:
        """Warm up the engine, and report the result to the thread that waits for it."""
        try:
            self.engine.warm_up()
        except BaseException as error:
            self.warmed_up.set_exception(error)
            raise
        self.warmed_up.set_result(None)

    def _take_turn(self) -> None:
        with self._turns:
            self._step()
            while self.engine.has_work and not self._is_stopping and self._turns.goes_on():
                self._step()

    def _step(self) -> None:
        started = time.perf_counter()
        self._take_commands()
        events = self.engine.step()
        self.stats = self.engine.stats()
        self._listener.on_step(self, events, time.perf_counter() - started)

    def _rest(self) -> None:
        """Wait for a command. Other threads add work before they look for idle engines, so either
        they see this engine or this engine sees the work.
        """
        self._is_resting = True
        if not self.engine.has_work:
            self._inbox.get()()
        self._is_resting = False

    def _take_commands(self) -> None:
        """Run all commands that have arrived, also while other engines had their turns."""
        while not self._inbox.empty():
            self._inbox.get()()

    def _stop(self) -> None:
        self._is_stopping = True
        self.engine.cancel_all()


def _nothing() -> None:
    pass


class FairShare:
    """Lets engines run steps at the same time if there are enough CPUs for all of their threads."""

    def __init__(self, num_cpus: int) -> None:
        self._has_changed = threading.Condition()
        self._num_cpus = self._num_free = num_cpus
        self._now = 0.0  # virtual: when the step that began last did
        self._waiting: list[ProcessorTurns] = []

    def join(
        self, num_engines: int = 1, threads: int = 1, weight: Callable[[], float] = lambda: 1.0
    ) -> "list[ProcessorTurns]":
        """Return a ProcessorTurns for each engine of a new model, or of its jobs of one size.

        weight: returns the current fraction of the model's share for jobs of this size.
        """
        account = Account(weight)
        threads = min(threads, self._num_cpus)
        return [ProcessorTurns(self, account, threads) for _ in range(num_engines)]

    def begin(self, turns: "ProcessorTurns") -> None:
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

    def goes_on(self, turns: "ProcessorTurns", seconds: float) -> bool:
        """Charge the turn so far, and return whether it may take one more step: no waiting engine
        has a lower virtual time. If it released the processor between short steps, each of them
        would wait for a long step.
        """
        with self._has_changed:
            self._charge(turns, seconds)
            turns.starts_at = turns.account.time
            if any(other.place <= turns.place for other in self._waiting):
                return False
            self._now = max(self._now, turns.starts_at)
            return True

    def end(self, turns: "ProcessorTurns", seconds: float) -> None:
        with self._has_changed:
            self._charge(turns, seconds)
            self._num_free += turns.threads
            self._has_changed.notify_all()

    def _charge(self, turns: "ProcessorTurns", seconds: float) -> None:
        account = turns.account
        cost = seconds * turns.threads / account.weight()
        account.time = max(account.time, turns.starts_at) + cost

    def _is_next(self, turns: "ProcessorTurns") -> bool:
        is_first = turns is min(self._waiting, key=lambda each: each.place)
        return is_first and self._num_free >= turns.threads


class Account:
    """The virtual time of one model, or of its jobs of one size, in seconds of one CPU."""

    def __init__(self, weight: Callable[[], float]) -> None:
        self.weight = weight
        self.time = 0.0


class UnsharedProcessor(nullcontext[None]):
    """Replaces ProcessorTurns for an engine that does not share its processors."""

    def goes_on(self) -> bool:
        return True


class ProcessorTurns:
    """A context manager for an engine's steps: it waits until the engine may use the processors."""

    def __init__(self, share: FairShare, account: Account, threads: int) -> None:
        self._share = share
        self.account, self.threads = account, threads
        self._began = 0.0
        self.starts_at = 0.0

    @property
    def place(self) -> float:
        """Return the virtual time of the next turn. Other engines on the same account may have had
        turns since this one began to wait.
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
        """Return the seconds since the last call."""
        before, self._began = self._began, time.perf_counter()
        return self._began - before

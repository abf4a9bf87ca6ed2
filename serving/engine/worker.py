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
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol

from serving.engine.scheduling.fair_queue import JobSize
from serving.engine.scheduling.scheduler import Scheduler
from serving.engine.stats import EngineStats, StepStats
from serving.requests.request import Event, GenerationRequest

logger = logging.getLogger(__name__)

Command = Callable[[], None]


class SteppedEngine(Protocol):
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


class Worker:
    """The thread of an engine: it runs steps while there is work, else it waits for a command.

    stats: of the engine, after its last step.
    warmed_up: is done when the engine can serve, or has failed to.
    """

    def __init__(
        self, engine: SteppedEngine, listener: Listener, turns: "ProcessorTurns | None" = None
    ) -> None:
        """turns: taken for the steps; None if the engine does not share processors."""
        self.engine = engine
        self.stats = engine.stats()
        self.warmed_up: Future[None] = Future()
        self._turns, self._listener = turns, listener
        self._inbox: SimpleQueue[Command] = SimpleQueue()
        self._is_stopping = False
        self._is_idle = False
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended, if it was started."""
        if self._thread.ident is not None:
            self._thread.join()

    def call_soon(self, command: Command) -> None:
        """Call a command on the engine's thread, after the current step."""
        self._inbox.put(command)

    def stop(self) -> None:
        """Abort all requests and end the thread, after the current step."""
        self.call_soon(self._stop)

    def wake(self) -> bool:
        """Make the engine look for work if it is idle; return whether it was idle."""
        if not self._is_idle:
            return False
        self._is_idle = False
        self.call_soon(_do_nothing)
        return True

    # From here on, everything runs on the engine's thread.

    def _serve(self) -> None:
        has_failed = False
        try:
            self._warm_up()
            while not self._is_stopping:
                if not self.engine.has_work:
                    self._wait_for_command()
                elif self._turns is None:
                    self._step()
                else:
                    self._take_turn(self._turns)
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

    def _take_turn(self, turns: "ProcessorTurns") -> None:
        with turns:
            self._step()
            while self.engine.has_work and not self._is_stopping and turns.may_continue():
                self._step()

    def _step(self) -> None:
        started = time.perf_counter()
        while not self._inbox.empty():  # commands that came meanwhile, in others' turns too
            self._inbox.get()()
        events = self.engine.step()
        self.stats = self.engine.stats()
        self._listener.on_step(self, events, time.perf_counter() - started)

    def _wait_for_command(self) -> None:
        """Wait until another thread calls. Other threads add work before they look for idle
        engines, so either they see that this engine is idle, or it sees the work.
        """
        self._is_idle = True
        if not self.engine.has_work:
            self._inbox.get()()
        self._is_idle = False

    def _stop(self) -> None:
        self._is_stopping = True
        self.engine.cancel_all()


def _do_nothing() -> None:
    """Make a waiting engine look for work."""


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

    def join(
        self, num_engines: int = 1, threads: int = 1, weight: Callable[[], float] = lambda: 1.0
    ) -> "list[ProcessorTurns]":
        """Return a ProcessorTurns for each engine of a new model, or of its jobs of one size.

        weight: returns the current fraction of the model's share for jobs of this size.
        """
        account = Account(weight)
        threads = min(threads, self._num_cpus)
        return [ProcessorTurns(self, account, threads) for _ in range(num_engines)]

    def acquire(self, turns: "ProcessorTurns") -> None:
        with self._has_changed:
            turns.start_tag = max(self._now, turns.account.time)
            self._waiting.append(turns)
            while not self._is_next(turns):
                self._has_changed.wait()
            self._waiting.remove(turns)
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
    """A context manager for an engine's steps: it waits until the engine may use the processors."""

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

"""Run an engine on a thread of its own."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Protocol

from serving.engine.fair_share import ProcessorTurns
from serving.engine.runtime.graph import LentThreads
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
    lent_threads: LentThreads | None

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
        self, engine: SteppedEngine, listener: Listener, turns: ProcessorTurns | None = None
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

    def _take_turn(self, turns: ProcessorTurns) -> None:
        lent_threads = self.engine.lent_threads
        if lent_threads is not None:
            lent_threads.are_lent = self._may_borrow(lent_threads, turns)
            turns.threads = lent_threads.current_threads
        with turns:
            self._step()
            while self.engine.has_work and not self._is_stopping and turns.may_continue():
                if lent_threads and lent_threads.are_lent != self._may_borrow(lent_threads, turns):
                    break  # the next turn has other threads
                self._step()

    def _may_borrow(self, lent_threads: LentThreads, turns: ProcessorTurns) -> bool:
        """Return whether few other engines have work, so that this one may use their threads."""
        most = lent_threads.most_engines
        has_room = self.engine.scheduler.num_busy_engines <= most
        return has_room and turns.has_few_others(most - 1)

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

"""Runs one engine on a thread of its own, for as long as it is wanted.

It takes commands before every step and tells what happened after it; what they are is the bridge's
business.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Protocol

from serving.engine.admission.desk import Desk
from serving.engine.admission.lanes import Lane
from serving.engine.measures import EngineStats, StepStats
from serving.engine.turns import TakesTurns
from serving.request import Event, GenerationRequest

logger = logging.getLogger(__name__)

Command = Callable[[], None]


class Steps(Protocol):
    """Gives requests their events, step by step: the engine that decodes, and the one that only
    encodes.
    """

    desk: Desk
    lane: Lane
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
    """Hears of workers, on their threads."""

    def on_step(self, worker: "Worker", events: Sequence[Event], step_seconds: float) -> None: ...

    def on_end(self, worker: "Worker", has_failed: bool) -> None: ...


class Worker:
    """Steps while there is work, else sleeps until it is told something."""

    def __init__(self, engine: Steps, turns: TakesTurns, listener: Listener) -> None:
        """turns: entered around its steps, where engines share a processor."""
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
        """Let the engine's thread run a command after the step that it is in."""
        self._inbox.put(command)

    def stop(self) -> None:
        """Abort what is open and end the thread, after the step that it is in."""
        self.tell(self._stop)

    def wake(self) -> bool:
        """Let the engine look for work, if it sleeps; return whether it did."""
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
        """Also tell whoever waits for it how it went."""
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
        """Wait for a command. Whoever brings work does so before looking for engines that rest, so
        that either it sees this one or this one sees the work.
        """
        self._is_resting = True
        if not self.engine.has_work:
            self._inbox.get()()
        self._is_resting = False

    def _take_commands(self) -> None:
        """Run all commands that have come, also while other engines had their turns."""
        while not self._inbox.empty():
            self._inbox.get()()

    def _stop(self) -> None:
        self._is_stopping = True
        self.engine.cancel_all()


def _nothing() -> None:
    pass

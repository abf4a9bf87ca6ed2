"""Run the engines' threads and an event loop one at a time, in an order that a seed decides.

Threads hand a baton back wherever they could be interrupted in a way that matters: before they look
for work, before a step, and while they wait for a command. So the same seed gives the same
interleaving, and a failure can be repeated.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from random import Random
from typing import Any

from serving.engine.bridge import AsyncEngine
from serving.engine.fair_share import FairShare
from serving.engine.worker import Command, Worker

_TICKS = (0.0, 0.0, 0.001, 0.01, 0.1)  # seconds that pass between two turns


class Clock:
    """Stands in for the module `time` in the engine."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Abandoned(BaseException):
    """Ends the thread of an actor that is not needed any more."""


class Actor:
    """A thread that runs only when it is told to."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target
        self._may_run, self._has_paused = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.waits_for: Callable[[], object] | None = None
        self.has_ended = self.is_abandoned = False
        self.ident: int | None = None  # as of `threading.Thread`

    @property
    def can_run(self) -> bool:
        return not self.has_ended and (self.waits_for is None or bool(self.waits_for()))

    def start(self) -> None:
        """Start the thread, and run it to its first pause."""
        self.thread.start()
        self.ident = self.thread.ident
        self.run()

    def run(self) -> None:
        """Run the thread to its next pause, or to its end."""
        self._may_run.release()
        self._has_paused.acquire()

    def pause(self, until: Callable[[], object] | None = None) -> None:
        """Let others run. Other threads than this one go on."""
        if threading.current_thread() is self.thread:
            self.waits_for = until
            self._has_paused.release()
            self._may_run.acquire()
            self.waits_for = None
            if self.is_abandoned:
                raise Abandoned

    def join(self) -> None:
        while not self.has_ended:
            assert self.can_run, "a thread that should end waits for a command"
            self.run()

    def abandon(self) -> None:
        """End the thread where it is."""
        self.is_abandoned = True
        while not self.has_ended:
            self.run()

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            self._target()
        finally:
            self.has_ended = True
            self._has_paused.release()


class Inbox(SimpleQueue[Command]):
    """The queue of a worker, at which its thread pauses."""

    def __init__(self, pause: Callable[[Callable[[], object]], None]) -> None:
        self._pause = pause
        self._commands: deque[Command] = deque()

    def put(self, item: Command, *_: object, **__: object) -> None:
        self._commands.append(item)

    def get(self, *_: object, **__: object) -> Command:
        self._pause(lambda: self._commands)
        return self._commands.popleft()

    def empty(self) -> bool:
        return not self._commands


class Changes(threading.Condition):
    """The condition of a `FairShare`, at which threads pause. Nobody else runs meanwhile, so that
    it needs no lock.

    current: returns the actor that runs.
    """

    def __init__(self, current: Callable[[], Actor]) -> None:
        super().__init__()
        self._current, self._number = current, 0

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        number = self._number
        self._current().pause(lambda: self._number != number)
        return True

    def notify_all(self) -> None:
        self._number += 1


class Stage:
    """Decides who runs next: one of the threads, or the event loop."""

    def __init__(self, random: Random, clock: Clock) -> None:
        self.random, self.clock = random, clock
        self.loop = asyncio.new_event_loop()
        self.loop.time = clock.perf_counter  # type: ignore[method-assign]
        self.loop._write_to_self = lambda: None  # type: ignore[attr-defined]  # nothing sleeps
        self.actors: list[Actor] = []
        self.num_turns = 0

    def put_on(self, model: AsyncEngine) -> None:
        """Replace the threads of a model's workers, before it is started."""
        for worker in model._workers:
            actor = Actor(worker._serve)
            self._replace(worker, actor)
            self.actors.append(actor)

    def put_share_on(self, share: FairShare) -> None:
        """Replace the condition at which engines wait for processors."""
        share._has_changed = Changes(self._current)

    def take_off(self, model: AsyncEngine) -> None:
        """End the threads of a model's workers wherever they are, as a kill does."""
        for worker in model._workers:
            actor: Actor = worker._thread  # type: ignore[assignment]
            actor.abandon()
            self.actors.remove(actor)

    def _current(self) -> Actor:
        thread = threading.current_thread()
        return next(actor for actor in self.actors if actor.thread is thread)

    def _replace(self, worker: Worker, actor: Actor) -> None:
        worker._thread = actor  # type: ignore[assignment]
        worker._inbox = Inbox(actor.pause)
        worker.engine.pause = actor.pause  # type: ignore[attr-defined]

    def turn(self) -> None:
        """Let somebody run for a moment."""
        self.num_turns += 1
        self.clock.now += self.random.choice(_TICKS)
        ready = [actor for actor in self.actors if actor.can_run]
        chosen = self.random.choice([None, *ready])
        if chosen is None:
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        else:
            chosen.run()

    def close(self) -> None:
        """End all threads and tasks, wherever they are."""
        for actor in self.actors:
            actor.abandon()
        self.loop.run_until_complete(_cancel(asyncio.all_tasks(self.loop)))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""Bridges asyncio and an engine on a thread of its own.

Callers live on event loops; the engine's thread takes their commands from an inbox before every
step and hands events back after it, with one wake-up of a loop per step at most. No other file
knows of both worlds.
"""

import asyncio
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue

from serving.engine.engine import Engine
from serving.engine.measures import EngineObserver
from serving.errors import EngineStopped
from serving.request import Event, FailedEvent, GenerationRequest, is_final

logger = logging.getLogger(__name__)


class AsyncEngine:
    """Streams one request (`generate`) or waits for many (`run`). Whoever stops waiting cancels."""

    def __init__(
        self,
        engine: Engine,
        observer: EngineObserver | None = None,
        turns: AbstractContextManager[None] | None = None,
    ) -> None:
        """Wrap an engine, which runs once `start` is called.

        turns: entered around every step, where engines share a processor (`FairShare`).
        """
        self.engine = engine
        self._turns = turns or nullcontext()
        self._observer = observer
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._tickets: dict[str, Ticket] = {}
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._is_stopping = False
        self._door = threading.Lock()  # nothing enters the inbox once the thread has left it
        self._is_open = False
        self._warmed_up: Future[None] = Future()

    @property
    def is_alive(self) -> bool:
        return self._is_open

    def start(self) -> None:
        """Let the engine warm up, then serve. Raises DeviceError or OutOfMemory."""
        self._is_open = True
        self._thread.start()
        try:
            self._warmed_up.result()
        except BaseException:
            self._thread.join()
            raise

    async def shutdown(self) -> None:
        """Abort what is open and end the thread, after the step it is in."""
        if self._is_open:
            self._inbox.put(self._stop)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Yield all events of a request as they come. Raises RequestError, Overloaded,
        EngineStopped.

        Close the generator (`contextlib.aclosing`) to cancel the request.
        """
        ticket = self._enter([request], is_streamed=True)
        try:
            while True:
                for event in await ticket.next_events():
                    yield event
                    if is_final(event):
                        return
        finally:
            self._leave(ticket)

    async def run(self, requests: Sequence[GenerationRequest]) -> list[list[Event]]:
        """Submit all or none; return the events of each when all have ended. Raises as generate."""
        if not requests:
            return []
        ticket = self._enter(requests, is_streamed=False)
        try:
            events = await ticket.next_events()
        finally:
            self._leave(ticket)
        by_request: dict[str, list[Event]] = {request.request_id: [] for request in requests}
        for event in events:
            by_request[event.request_id].append(event)
        return list(by_request.values())

    def _enter(self, requests: Sequence[GenerationRequest], is_streamed: bool) -> "Ticket":
        ticket = Ticket(requests, is_streamed)
        with self._door:
            if not self._is_open:
                raise EngineStopped("the engine is not running")
            self._inbox.put(partial(self._submit, ticket))
        return ticket

    def _leave(self, ticket: "Ticket") -> None:
        if ticket.num_open:
            self._inbox.put(partial(self._cancel, ticket))

    # From here on, everything runs on the engine's thread.

    def _serve(self) -> None:
        try:
            self._warm_up()
            while not self._is_stopping:
                if self.engine.has_work:
                    self._step()
                else:
                    self._inbox.get()()
        except BaseException as error:
            logger.critical("the engine's thread has died", exc_info=error)
        finally:
            self._close()

    def _warm_up(self) -> None:
        """Also tell `start` how it went."""
        try:
            self.engine.warm_up()
        except BaseException as error:
            self._warmed_up.set_exception(error)
            raise
        self._warmed_up.set_result(None)

    def _step(self) -> None:
        with self._turns:
            started = time.perf_counter()
            self._take_commands()
            events = self.engine.step()
        self._deliver(events)
        if self._observer is not None:
            self._observe(self._observer, time.perf_counter() - started)

    def _take_commands(self) -> None:
        """Run all commands that have come, also while other engines had their turns."""
        while not self._inbox.empty():
            self._inbox.get()()

    def _observe(self, observer: EngineObserver, step_seconds: float) -> None:
        try:
            observer.on_step(self.engine.step_stats, self.engine.stats(), step_seconds)
        except Exception as error:
            logger.error("the observer failed; it is not called any more", exc_info=error)
            self._observer = None

    def _submit(self, ticket: "Ticket") -> None:
        try:
            self.engine.submit(*ticket.requests)
        except Exception as error:
            ticket.refuse(error)
            _wake([ticket])
        else:
            self._tickets |= {request.request_id: ticket for request in ticket.requests}

    def _cancel(self, ticket: "Ticket") -> None:
        for request in ticket.requests:
            if self._tickets.get(request.request_id) is ticket:
                self.engine.cancel(request.request_id)

    def _stop(self) -> None:
        self._is_stopping = True
        self.engine.cancel_all()

    def _deliver(self, events: Sequence[Event]) -> None:
        woken: dict[Ticket, None] = {}
        for event in events:
            ticket = self._tickets[event.request_id]
            ticket.events.append(event)
            if is_final(event):
                del self._tickets[event.request_id]
                ticket.num_open -= 1
            if ticket.is_streamed or not ticket.num_open:
                woken[ticket] = None
        _wake(woken)

    def _close(self) -> None:
        """End what the engine did not: nothing is left waiting."""
        with self._door:
            self._is_open = False
        while not self._inbox.empty():
            command = self._inbox.get()
            if isinstance(command, partial) and command.func == self._submit:
                ticket: Ticket = command.args[0]
                ticket.refuse(EngineStopped("the engine is shutting down"))
                _wake([ticket])
        error = EngineStopped("the engine has stopped")
        self._deliver([FailedEvent(request_id, error) for request_id in self._tickets])


class Ticket:
    """Holds what one caller waits for: the events of its requests, one by one or all together."""

    def __init__(self, requests: Sequence[GenerationRequest], is_streamed: bool) -> None:
        self.requests = requests
        self.is_streamed = is_streamed
        self.num_open = len(requests)
        self.events: deque[Event] = deque()
        self.loop = asyncio.get_running_loop()
        self.has_news = asyncio.Event()
        self._refusal: Exception | None = None

    def refuse(self, error: Exception) -> None:
        self._refusal = error
        self.num_open = 0

    async def next_events(self) -> list[Event]:
        await self.has_news.wait()
        self.has_news.clear()
        if self._refusal is not None:
            raise self._refusal
        return [self.events.popleft() for _ in range(len(self.events))]


def _wake(tickets: Sequence[Ticket] | dict[Ticket, None]) -> None:
    """Wake the callers, each on its own loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = defaultdict(list)
    for ticket in tickets:
        by_loop[ticket.loop].append(ticket)
    for loop, group in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set_news, group)


def _set_news(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.has_news.set()

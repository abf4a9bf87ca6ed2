"""Connect asyncio to engines that run on threads of their own.

Callers on event loops submit requests to the engines' scheduler; engines take them from there and
send events back after every step, with at most one wake-up of a loop per step. No other file knows
both worlds.
"""

import asyncio
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial

from serving.engine.measures import EngineObserver, EngineStats
from serving.engine.worker import Steps, TakesTurns, UnsharedProcessor, Worker
from serving.errors import EngineStopped
from serving.request import Event, FailedEvent, GenerationRequest, is_final

logger = logging.getLogger(__name__)


class Ticket:
    """What one caller waits for: the events of its requests, one by one or all together."""

    def __init__(self, requests: Sequence[GenerationRequest], is_streamed: bool) -> None:
        self.requests = requests
        self.is_streamed = is_streamed
        self.num_open = len(requests)
        self.events: deque[Event] = deque()
        self.loop = asyncio.get_running_loop()
        self.has_news = asyncio.Event()

    async def next_events(self) -> list[Event]:
        await self.has_news.wait()
        self.has_news.clear()
        return [self.events.popleft() for _ in range(len(self.events))]


class AsyncEngine:
    """Streams one request (`generate`) or many (`stream`), or waits for many (`run`). Whoever stops
    waiting cancels.
    """

    def __init__(
        self,
        engines: Sequence[Steps],
        observer: EngineObserver | None = None,
        turns: Sequence[TakesTurns] = (),
    ) -> None:
        """Wrap engines of one bundle that share a scheduler; they run once `start` is called.

        turns: one for each engine, entered around its steps, where engines share a processor
            (`FairShare`).
        """
        assert all(engine.scheduler is engines[0].scheduler for engine in engines)
        self._scheduler = engines[0].scheduler
        self._observer = observer
        self._tickets = Tickets()
        turns = turns or [UnsharedProcessor() for _ in engines]
        self._workers = [Worker(*each, self) for each in zip(engines, turns, strict=True)]
        self._num_running = 0
        self._door = threading.Lock()  # nobody enters once the engines have been told to stop
        self._is_open = False

    @property
    def is_alive(self) -> bool:
        return self._is_open

    def stats(self) -> EngineStats:
        """Return what all engines together hold, each as its last step has left it."""
        each = [worker.stats for worker in self._workers]
        return EngineStats(
            len(self._scheduler) + sum(stats.num_underway for stats in each),
            sum(stats.num_rows for stats in each),
            sum(stats.num_slots for stats in each),
            sum(stats.kv_bytes for stats in each),
            sum(stats.num_underway for stats in each),
            self._scheduler.waiting_work,
        )

    def start(self) -> None:
        """Let the engines warm up, then serve. Raises DeviceError or OutOfMemory."""
        self._is_open = True
        self._num_running = len(self._workers)
        for worker in self._workers:
            worker.start()
        try:
            for worker in self._workers:
                worker.warmed_up.result()
        except BaseException:
            self.close()
            for worker in self._workers:
                worker.join()
            raise

    async def shutdown(self) -> None:
        """Abort what is open and wait until the threads have ended, after the steps they are in."""
        self.close()
        for worker in self._workers:
            await asyncio.to_thread(worker.join)

    def close(self) -> None:
        """Abort what is open and let the threads end. May be called from any thread."""
        with self._door:
            was_open, self._is_open = self._is_open, False
        if was_open:
            for worker in self._workers:
                worker.stop()

    def check_room(self, work: int, share: str, priority: int) -> None:
        """Raise Overloaded if a job of about so much work, in tokens, would be refused
        now."""
        self._scheduler.check_room(work, share, priority)

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

    async def stream(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncGenerator[list[Event], None]:
        """Submit all or none; yield their events as they come. Raises, and cancels, as generate."""
        ticket = self._enter(requests, is_streamed=True)
        num_open = len(requests)
        try:
            while num_open:
                events = await ticket.next_events()
                num_open -= sum(map(is_final, events))
                yield events
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

    def _enter(self, requests: Sequence[GenerationRequest], is_streamed: bool) -> Ticket:
        generations = self._scheduler.accept(requests, time.perf_counter())
        ticket = Ticket(requests, is_streamed)
        with self._door:
            if not self._is_open:
                raise EngineStopped("the engine is not running")
            self._tickets.open(ticket, lambda: self._scheduler.add(generations))
            self._wake(len(requests))
        return ticket

    def _wake(self, num_requests: int) -> None:
        """Wake as many engines as may find a request each."""
        for worker in self._workers:
            if num_requests and worker.engine.has_work and worker.wake():
                num_requests -= 1

    def _leave(self, ticket: Ticket) -> None:
        """Cancel what has not ended, at whichever engine it is."""
        if ticket.num_open:
            for worker in self._workers:
                worker.tell(partial(self._cancel, worker, ticket))

    # From here on, everything runs on the engines' threads.

    def _cancel(self, worker: Worker, ticket: Ticket) -> None:
        for request_id in self._tickets.open_ids(ticket):
            worker.engine.cancel(request_id)

    def on_step(self, worker: Worker, events: Sequence[Event], step_seconds: float) -> None:
        self._tickets.deliver(events)
        # The end of a large job, here, lets others take small ones that wait.
        self._wake(len(self._scheduler))
        if self._observer is not None:
            self._observe(self._observer, worker, step_seconds)

    def on_end(self, worker: Worker, has_failed: bool) -> None:
        """Where one engine fails, all end: the last one ends what is left, so that nobody waits."""
        if has_failed:
            self.close()
        with self._door:
            self._num_running -= 1
            is_last = self._num_running == 0
        if is_last:
            error = EngineStopped("the engine has stopped")
            self._tickets.deliver(FailedEvent(each, error) for each in self._tickets.all_ids())

    def _observe(self, observer: EngineObserver, worker: Worker, step_seconds: float) -> None:
        try:
            observer.on_step(worker.engine.step_stats, self.stats(), step_seconds)
        except Exception as error:
            logger.error("the observer failed; it is not called any more", exc_info=error)
            self._observer = None


class Tickets:
    """Knows whose request is whose. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._by_id: dict[str, Ticket] = {}
        self._lock = threading.Lock()

    def open(self, ticket: Ticket, submit: Callable[[], None]) -> None:
        """Submit a ticket's requests; no event of theirs is delivered before they are known."""
        with self._lock:
            submit()
            self._by_id |= {request.request_id: ticket for request in ticket.requests}

    def open_ids(self, ticket: Ticket) -> list[str]:
        """List the requests of a ticket that have not ended."""
        ids = (request.request_id for request in ticket.requests)
        return [request_id for request_id in ids if self._by_id.get(request_id) is ticket]

    def all_ids(self) -> list[str]:
        return list(self._by_id)

    def deliver(self, events: Iterable[Event]) -> None:
        """Hand out events, with one wake-up of a loop at most."""
        woken: dict[Ticket, None] = {}
        with self._lock:
            for event in events:
                ticket = self._by_id[event.request_id]
                ticket.events.append(event)
                if is_final(event):
                    del self._by_id[event.request_id]
                    ticket.num_open -= 1
                if ticket.is_streamed or not ticket.num_open:
                    woken[ticket] = None
        _wake(woken)


def _wake(tickets: Iterable[Ticket]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = defaultdict(list)
    for ticket in tickets:
        by_loop[ticket.loop].append(ticket)
    for loop, group in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set_news, group)


def _set_news(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.has_news.set()

"""Connect asyncio to engines that run on their own threads.

Callers on event loops submit requests to the engines' scheduler. The engines take requests from the
scheduler and return events after every step, with at most one wake-up of a loop per step. Only this
file uses both asyncio and engine threads.
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
from serving.requests.request import Event, FailedEvent, FinalEvent, GenerationRequest, is_final

logger = logging.getLogger(__name__)


class Ticket:
    """The events that one caller waits for: one by one, or all together."""

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
    """Streams one request (`generate`) or several (`stream`), or waits for several (`run`). A
    caller that stops waiting cancels its requests.
    """

    def __init__(
        self,
        engines: Sequence[Steps],
        observer: EngineObserver | None = None,
        turns: Sequence[TakesTurns] = (),
    ) -> None:
        """Wrap engines of one bundle that share a scheduler. They run after `start` is called.

        turns: one context manager for each engine, entered for its steps, if engines share
            processors (`FairShare`).
        """
        assert all(engine.scheduler is engines[0].scheduler for engine in engines)
        self._scheduler = engines[0].scheduler
        self._observer = observer
        self._tickets = Tickets()
        turns = turns or [UnsharedProcessor() for _ in engines]
        self._workers = [Worker(*each, self) for each in zip(engines, turns, strict=True)]
        self._num_running = 0
        self._door = threading.Lock()  # no request is submitted after the engines were told to stop
        self._is_open = False

    @property
    def is_alive(self) -> bool:
        return self._is_open

    @property
    def max_rows(self) -> int:
        """Return the number of rows of each engine."""
        return self._scheduler.slots

    def stats(self) -> EngineStats:
        """Return the sum over all engines of their numbers after the last step."""
        each = [worker.stats for worker in self._workers]
        return EngineStats(
            len(self._scheduler) + sum(stats.num_prefilling for stats in each),
            sum(stats.num_rows for stats in each),
            sum(stats.num_slots for stats in each),
            sum(stats.kv_bytes for stats in each),
            sum(stats.num_prefilling for stats in each),
            self._scheduler.waiting_work,
        )

    def start(self) -> None:
        """Warm up the engines, then start serving. Raises DeviceError or OutOfMemory."""
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
        """Abort all requests and wait until the threads have finished their current steps."""
        self.close()
        for worker in self._workers:
            await asyncio.to_thread(worker.join)

    def close(self) -> None:
        """Abort all requests and tell the threads to end. Thread-safe."""
        with self._door:
            was_open, self._is_open = self._is_open, False
        if was_open:
            for worker in self._workers:
                worker.stop()

    def check_room(self, work: int, share: str, priority: int) -> None:
        """Raise Overloaded if a job with `work` tokens would be refused now."""
        self._scheduler.check_room(work, share, priority)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Yield the events of a request. Raises RequestError, Overloaded, EngineStopped.

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
        """Submit requests, all or none, and yield their events. Raises, and cancels, like
        `generate`.
        """
        ticket = self._enter(requests, is_streamed=True)
        num_open = len(requests)
        try:
            while num_open:
                events = await ticket.next_events()
                num_open -= sum(map(is_final, events))
                yield events
        finally:
            self._leave(ticket)

    async def run(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        """Submit requests, all or none, and return the final event of each after all have ended.
        Raises like `generate`.
        """
        if not requests:
            return []
        ticket = self._enter(requests, is_streamed=False)
        try:
            events = await ticket.next_events()
        finally:
            self._leave(ticket)
        ends = {event.request_id: event for event in events if is_final(event)}
        return [ends[request.request_id] for request in requests]

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
        """Wake as many idle engines as there are requests."""
        for worker in self._workers:
            if num_requests and worker.engine.has_work and worker.wake():
                num_requests -= 1

    def _leave(self, ticket: Ticket) -> None:
        """Cancel the requests of a ticket that have not ended, on the engines that run them."""
        if ticket.num_open:
            for worker in self._workers:
                worker.tell(partial(self._cancel, worker, ticket))

    # From here on, everything runs on the engines' threads.

    def _cancel(self, worker: Worker, ticket: Ticket) -> None:
        for request_id in self._tickets.open_ids(ticket):
            worker.engine.cancel(request_id)

    def on_step(self, worker: Worker, events: Sequence[Event], step_seconds: float) -> None:
        self._tickets.deliver(events)
        # When a large job ends here, other engines may take waiting small jobs.
        self._wake(len(self._scheduler))
        if self._observer is not None:
            self._observe(self._observer, worker, step_seconds)

    def on_end(self, worker: Worker, has_failed: bool) -> None:
        """When one engine fails, stop all; the last one aborts the remaining requests, so that no
        caller waits forever.
        """
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
    """Maps request ids to tickets. All methods are thread-safe."""

    def __init__(self) -> None:
        self._by_id: dict[str, Ticket] = {}
        self._lock = threading.Lock()

    def open(self, ticket: Ticket, submit: Callable[[], None]) -> None:
        """Register a ticket, then submit its requests, so that no event arrives before the ticket
        is known.
        """
        with self._lock:
            submit()
            self._by_id |= {request.request_id: ticket for request in ticket.requests}

    def open_ids(self, ticket: Ticket) -> list[str]:
        """Return the ids of a ticket's requests that have not ended."""
        ids = (request.request_id for request in ticket.requests)
        return [request_id for request_id in ids if self._by_id.get(request_id) is ticket]

    def all_ids(self) -> list[str]:
        return list(self._by_id)

    def deliver(self, events: Iterable[Event]) -> None:
        """Pass events to their tickets, with at most one wake-up per loop."""
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

"""Connect asyncio to engines that run on their own threads.

Callers on event loops submit requests to the engines' scheduler. The engines take requests from the
scheduler and return events after every step, with at most one wake-up of a loop per step. Only this
file uses both asyncio and engine threads.
"""

import asyncio
import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial

from serving.engine.fair_share import ProcessorTurns
from serving.engine.stats import EngineObserver, EngineStats
from serving.engine.worker import SteppedEngine, Worker
from serving.errors import EngineStopped
from serving.requests.request import Event, FailedEvent, FinalEvent, GenerationRequest, is_final

logger = logging.getLogger(__name__)


class EventCollector:
    """Collects the events of one call for the coroutine that awaits them: as they come, or all
    together at the end.
    """

    def __init__(self, requests: Sequence[GenerationRequest], is_streamed: bool) -> None:
        self.requests = requests
        self.is_streamed = is_streamed
        self.num_open = len(requests)
        self.events: deque[Event] = deque()
        self.loop = asyncio.get_running_loop()
        self.has_events = asyncio.Event()

    async def next_events(self) -> list[Event]:
        await self.has_events.wait()
        self.has_events.clear()
        return [self.events.popleft() for _ in range(len(self.events))]


class AsyncEngine:
    """Streams one request (`generate`) or several (`stream`), or waits for several (`run`). A
    caller that stops waiting cancels its requests.
    """

    def __init__(
        self,
        engines: Sequence[SteppedEngine],
        observer: EngineObserver | None = None,
        turns: Sequence[ProcessorTurns] = (),
    ) -> None:
        """Wrap engines of one bundle that share a scheduler. They run after `start` is called.

        turns: one for each engine, if engines share processors (`FairShare`).
        """
        assert all(engine.scheduler is engines[0].scheduler for engine in engines)
        self._scheduler = engines[0].scheduler
        self._observer = observer
        self._workers = [
            Worker(engine, self, turns[number] if turns else None)
            for number, engine in enumerate(engines)
        ]
        self._num_running = 0
        self._is_open = False
        self._collectors: dict[str, EventCollector] = {}  # of requests in progress, by their ids
        # Held while requests are submitted, so that none comes after the engines were told to stop
        # and no event before its collector is known. The scheduler's lock is taken within it, and
        # never the other way round: the scheduler calls nothing here.
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        return self._is_open

    @property
    def max_rows(self) -> int:
        """Return the number of rows of each engine."""
        return self._scheduler.slots

    def stats(self) -> EngineStats:
        """Return the sum over all engines of their numbers after the last step."""
        all_stats = [worker.stats for worker in self._workers]
        num_prefilling = sum(stats.num_prefilling for stats in all_stats)
        return EngineStats(
            len(self._scheduler) + num_prefilling,
            sum(stats.num_rows for stats in all_stats),
            sum(stats.num_slots for stats in all_stats),
            sum(stats.kv_bytes for stats in all_stats),
            num_prefilling,
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
        with self._lock:
            was_open, self._is_open = self._is_open, False
        if was_open:
            for worker in self._workers:
                worker.stop()

    def check_room(self, work: int, share: str, priority: int) -> None:
        """Raise Overloaded if a job with `work` tokens would be refused now."""
        self._scheduler.check_room(work, share, priority)

    def taken_work(self) -> Counter[str]:
        """Return the work, in tokens, of each key that was ever taken from the waiting queue."""
        return self._scheduler.taken_work()

    def charge(self, account: str, work: int) -> None:
        """Charge a key with work that it has received in other processes, if it waits here."""
        self._scheduler.charge(account, work)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Yield the events of a request. Raises RequestError, Overloaded, EngineStopped.

        Close the generator (`contextlib.aclosing`) to cancel the request.
        """
        collector = self._submit([request], is_streamed=True)
        try:
            while True:
                for event in await collector.next_events():
                    yield event
                    if is_final(event):
                        return
        finally:
            self._cancel(collector)

    async def stream(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncGenerator[list[Event], None]:
        """Submit requests, all or none, and yield their events. Raises, and cancels, like
        `generate`.
        """
        collector = self._submit(requests, is_streamed=True)
        num_open = len(requests)
        try:
            while num_open:
                events = await collector.next_events()
                num_open -= sum(map(is_final, events))
                yield events
        finally:
            self._cancel(collector)

    async def run(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        """Submit requests, all or none, and return the final event of each after all have ended.
        Raises like `generate`.
        """
        if not requests:
            return []
        collector = self._submit(requests, is_streamed=False)
        try:
            events = await collector.next_events()
        finally:
            self._cancel(collector)
        final_events = {event.request_id: event for event in events if is_final(event)}
        return [final_events[request.request_id] for request in requests]

    def _submit(self, requests: Sequence[GenerationRequest], is_streamed: bool) -> EventCollector:
        generations = self._scheduler.accept(requests, time.perf_counter())
        collector = EventCollector(requests, is_streamed)
        with self._lock:
            if not self._is_open:
                raise EngineStopped("the engine is not running")
            self._scheduler.add(generations)
            self._collectors |= {request.request_id: collector for request in requests}
            self._wake_engines(len(requests))
        return collector

    def _cancel(self, collector: EventCollector) -> None:
        """Cancel the requests of a call that have not ended, on the engines that run them."""
        if collector.num_open:
            for worker in self._workers:
                worker.call_soon(partial(self._cancel_on, worker.engine, collector))

    def _wake_engines(self, num_requests: int) -> None:
        """Wake as many idle engines as there are requests."""
        for worker in self._workers:
            if num_requests and worker.engine.has_work and worker.wake():
                num_requests -= 1

    # From here on, everything runs on the engines' threads.

    def _cancel_on(self, engine: SteppedEngine, collector: EventCollector) -> None:
        for request in collector.requests:
            if self._collectors.get(request.request_id) is collector:
                engine.cancel(request.request_id)

    def on_step(self, worker: Worker, events: Sequence[Event], step_seconds: float) -> None:
        if events:
            self._deliver(events)
        # When a large job ends here, other engines may take waiting small jobs.
        self._wake_engines(len(self._scheduler))
        if self._observer is not None:
            try:
                self._observer.on_step(worker.engine.step_stats, self.stats(), step_seconds)
            except Exception as error:
                logger.error("the observer failed; it is not called any more", exc_info=error)
                self._observer = None

    def on_end(self, worker: Worker, has_failed: bool) -> None:
        """When one engine fails, stop all; the last one aborts the remaining requests, so that no
        caller waits forever.
        """
        if has_failed:
            self.close()
        with self._lock:
            self._num_running -= 1
            is_last = self._num_running == 0
        if is_last:
            error = EngineStopped("the engine has stopped")
            self._deliver([FailedEvent(request_id, error) for request_id in self._collectors])

    def _deliver(self, events: Iterable[Event]) -> None:
        """Pass events to their collectors, with at most one wake-up per loop."""
        to_notify: dict[asyncio.AbstractEventLoop, dict[EventCollector, None]] = defaultdict(dict)
        with self._lock:
            for event in events:
                collector = self._collectors[event.request_id]
                collector.events.append(event)
                if is_final(event):
                    del self._collectors[event.request_id]
                    collector.num_open -= 1
                if collector.is_streamed or not collector.num_open:
                    to_notify[collector.loop][collector] = None
        for loop, collectors in to_notify.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_notify, list(collectors))


def _notify(collectors: list[EventCollector]) -> None:
    for collector in collectors:
        collector.has_events.set()

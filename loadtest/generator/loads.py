"""Send requests when they are due: by users who wait for their answers, or at a rate."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from itertools import count

from loadtest.plan import LoadPlan
from loadtest.records import CANCELLED, OK, Request

PAUSE_AFTER_ERROR_SECONDS = 0.5  # so that a server that refuses at once is not flooded
_TIMER_SECONDS = 0.001  # the resolution of an event loop's timers
_FAR_APART_SECONDS = 0.005  # then it costs little to poll the clock for the last millisecond

Send = Callable[[int, float | None], Awaitable[Request]]


def due_times(plan: LoadPlan) -> Iterator[float]:
    """Yield when requests are due, in seconds since the run began, until the window ends or has as
    many requests as it may.
    """
    rate, draws, time = plan.arrivals.rate, random.Random(plan.work.seed), 0.0
    assert rate is not None
    num_in_window = 0
    for number in count(1):
        is_poisson = plan.arrivals.kind == "poisson"
        time = time + draws.expovariate(rate) if is_poisson else number / rate
        num_in_window += time >= plan.warm_up_seconds
        if time >= plan.end_seconds or (plan.requests and num_in_window > plan.requests):
            return
        yield time


class Load(ABC):
    """Sends requests until there are no more, or `stop` is called.

    send: sends the item of a number, with the time when it was due, and returns its record.
    clock: returns seconds since the run began.
    """

    def __init__(self, send: Send, clock: Callable[[], float]) -> None:
        self.in_flight = 0
        self.last_due = 0.0
        self.has_sent_all = asyncio.Event()
        self._send_now, self._clock = send, clock
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[object]] = set()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Send everything and wait for all answers. Raise what `send` raised."""
        await self._send_all()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Send no more requests, and wait for the answers."""
        self._stopped.set()

    def abort(self) -> None:
        """Send no more requests, and close the open connections."""
        self.stop()
        for task in self._tasks:
            task.cancel()

    @abstractmethod
    async def _send_all(self) -> None: ...

    async def _send(self, number: int, intended: float | None) -> Request:
        self.in_flight += 1
        record = await self._send_now(number, intended)
        self.in_flight -= 1
        return record

    def _start(self, coroutine: Coroutine[None, None, object]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            self._failure = failure
            self.stop()

    async def _sleep(self, seconds: float) -> None:
        """Sleep so long, or until there is no more to send."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()


class Users(Load):
    """A closed loop: each user asks, waits for the answer, and asks again."""

    def __init__(self, num_users: int, send: Send, clock: Callable[[], float]) -> None:
        super().__init__(send, clock)
        self._num_users = num_users
        self._numbers = count()

    async def _send_all(self) -> None:
        for _ in range(self._num_users):
            self._start(self._ask_repeatedly())

    async def _ask_repeatedly(self) -> None:
        while not self._stopped.is_set():
            record = await self._send(next(self._numbers), None)
            if record.outcome not in (OK, CANCELLED):
                await self._sleep(PAUSE_AFTER_ERROR_SECONDS)


class LoadPace(Load):
    """An open loop: each request is sent when it is due, however many are in flight."""

    def __init__(self, due: Iterable[float], send: Send, clock: Callable[[], float]) -> None:
        super().__init__(send, clock)
        self._due = due

    async def _send_all(self) -> None:
        for number, due in enumerate(self._due):
            await self._wait_until(due, is_far=due - self.last_due > _FAR_APART_SECONDS)
            if self._stopped.is_set():
                return
            self._start(self._send(number, due))
            self.last_due = due
        self.has_sent_all.set()

    async def _wait_until(self, due: float, is_far: bool) -> None:
        margin = _TIMER_SECONDS if is_far else 0.0
        while (rest := due - self._clock()) > 0 and not self._stopped.is_set():
            if rest > margin:
                await self._sleep(rest - margin)
            else:
                await asyncio.sleep(0)

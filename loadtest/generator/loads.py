"""Sends what is due, when it is due: users who wait for their answers, or a pace that does not.

Both are one process's share of a run. Whether the share is all there is, they do not know.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from loadtest.generator.items import Work
from loadtest.generator.sending import Sender
from loadtest.records import CANCELLED, OK, Request

PAUSE_AFTER_ERROR_SECONDS = 0.5  # a server that refuses at once is not to be hammered
_TIMER_SECONDS = 0.001  # event loops' timers are no finer
_FAR_APART_SECONDS = 0.005  # then it costs little to watch the clock for what timers are off


@dataclass(frozen=True, slots=True)
class LoadParts:
    """Holds what every load works with. `done` takes the record of each request that has ended."""

    work: Work
    sender: Sender
    clock: Callable[[], float]
    done: Callable[[Request], None]


class Load(ABC):
    """Sends requests until its share is done or `stop` is called."""

    def __init__(self, parts: LoadParts) -> None:
        self.in_flight = 0
        self.sent = 0
        self.last_due: float | None = None  # when the last request was due, once there is no more
        self._parts = parts
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Send everything, and return when everything has been answered.

        Raises what kept a record from being written down.
        """
        await self._send_all()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Send no more; what is in flight is waited for."""
        self._over.set()

    def abort(self) -> None:
        """Send no more and hang up on what is in flight."""
        self.stop()
        for task in self._tasks:
            task.cancel()

    @abstractmethod
    async def _send_all(self) -> None: ...

    async def _send(self, place: int, intended: float | None, user: int | None) -> Request:
        item = self._parts.work.item(place)
        self.in_flight += 1
        self.sent += 1
        record = await self._parts.sender.send(item, intended, user)
        self.in_flight -= 1
        self._parts.done(record)
        return record

    def _keep(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            self._failure = failure
            self.stop()

    async def _sleep(self, seconds: float) -> None:
        """Sleep so long, or until there is no more to send."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()


class Users(Load):
    """Has each user ask, wait for the answer and ask again: the server sets the pace."""

    def __init__(self, users: Iterable[int], places: Iterator[int], parts: LoadParts) -> None:
        super().__init__(parts)
        self._users = users
        self._places = places

    async def _send_all(self) -> None:
        for user in self._users:
            self._keep(self._ask_again_and_again(user))

    async def _ask_again_and_again(self, user: int) -> None:
        while not self._over.is_set():
            record = await self._send(next(self._places), None, user)
            if record.outcome not in (OK, CANCELLED) and not record.is_expected_error:
                await self._sleep(PAUSE_AFTER_ERROR_SECONDS)


class Pace(Load):
    """Sends each request when it is due, however many are still in flight."""

    def __init__(self, arrivals: Iterable[tuple[int, float]], parts: LoadParts) -> None:
        super().__init__(parts)
        self._arrivals = arrivals

    async def _send_all(self) -> None:
        before = 0.0
        for place, due in self._arrivals:
            await self._wait_until(due, is_far=due - before > _FAR_APART_SECONDS)
            if self._over.is_set():
                return
            self._keep(self._send_one(place, due))
            before = due
        self.last_due = before

    async def _send_one(self, place: int, due: float) -> None:
        await self._send(place, due, None)

    async def _wait_until(self, due: float, is_far: bool) -> None:
        margin = _TIMER_SECONDS if is_far else 0.0
        while (rest := due - self._parts.clock()) > 0 and not self._over.is_set():
            if rest > margin:
                await self._sleep(rest - margin)
            else:
                await asyncio.sleep(0)

"""Decides when requests are sent: each of N users asks, waits for the answer, and asks again.

In such a closed loop the server sets the pace. That shows throughput at a given concurrency; it
does not show how requests would queue if they kept coming at a pace of their own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from loadtest.clients import Answer, AnswerError, Client
from loadtest.timeline import OK, Exchange, Mark, Timeline

PAUSE_AFTER_ERROR_SECONDS = 0.5  # a server that refuses at once is not to be hammered


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Says how many users there are, and when the window closes: after a duration, or after so many
    requests.
    """

    users: int
    warm_up_seconds: float
    duration_seconds: float
    requests: int | None = None


class ClosedLoop:
    """Runs a plan and writes what happens into a timeline.

    After the warm-up the window opens; when it closes, users finish the request they are at and
    stop. Only exchanges that end inside the window count, so the load is whole all through it.
    """

    def __init__(
        self,
        plan: LoadPlan,
        client: Client,
        texts: Iterator[str],
        timeline: Timeline,
        show: Callable[[float, int], None],
    ) -> None:
        self.plan = plan
        self._client = client
        self._texts = texts
        self._timeline = timeline
        self._show = show
        self._started = time.perf_counter()
        self._window_is_open = False
        self._is_over = False
        self._measured = 0
        self._has_enough = asyncio.Event()

    async def run(self, server_tokens: Callable[[], Awaitable[float | None]]) -> None:
        async with asyncio.TaskGroup() as group:
            for user in range(self.plan.users):
                group.create_task(self._ask_again_and_again(user))
            await asyncio.sleep(self.plan.warm_up_seconds)
            self._timeline.opened = await self._mark(server_tokens)
            self._window_is_open = True
            await self._window_end()
            self._timeline.closed = await self._mark(server_tokens)
            self._is_over = True

    @property
    def done(self) -> float:
        """Return the part of the window that has passed, from 0 to 1."""
        if not self._window_is_open:
            return 0.0
        by_time = (self._now() - self._timeline.opened.time) / self.plan.duration_seconds
        by_count = self._measured / self.plan.requests if self.plan.requests else 0.0
        return min(1.0, max(by_time, by_count))

    async def _window_end(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_enough.wait(), self.plan.duration_seconds)

    async def _ask_again_and_again(self, user: int) -> None:
        while not self._is_over:
            exchange = await self._exchange(user, next(self._texts))
            self._record(exchange)
            if exchange.outcome != OK:
                await asyncio.sleep(PAUSE_AFTER_ERROR_SECONDS)

    async def _exchange(self, user: int, text: str) -> Exchange:
        start, outcome, answer = self._now(), OK, Answer()
        try:
            answer = await self._client.send(text)
        except AnswerError as error:
            outcome = error.kind
        end = self._now()
        first_token = None if answer.first_token is None else answer.first_token - self._started
        return Exchange(user, start, end, outcome, first_token, answer.sentences, answer.tokens)

    def _record(self, exchange: Exchange) -> None:
        self._timeline.exchanges.append(exchange)
        self._measured += self._window_is_open
        if self._measured == self.plan.requests:
            self._has_enough.set()
        self._show(self.done, len(self._timeline.exchanges))

    async def _mark(self, server_tokens: Callable[[], Awaitable[float | None]]) -> Mark:
        tokens = await server_tokens()
        return Mark(self._now(), tokens)

    def _now(self) -> float:
        return time.perf_counter() - self._started

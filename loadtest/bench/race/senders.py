"""Sends requests over HTTP: at random times at a rate, or from so many users who wait.

An open loop does not wait for answers: where the server is too slow its queue grows, and so do the
times. That shows how many requests a second it can take; a closed loop cannot.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import aiohttp

Body = dict[str, Any]
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Arrivals:
    """Holds what came of requests that were sent at a rate: seconds of those answered."""

    rate: float
    seconds: list[float]
    num_failed: int
    answered_per_second: float

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0

    def is_sustained(self, limit_seconds: float) -> bool:
        """Tell whether all were answered, 95 of 100 within the limit."""
        return bool(self.seconds) and not self.num_failed and self.percentile(0.95) <= limit_seconds

    def as_json(self) -> dict[str, float]:
        times = {f"p{share}": self.percentile(share / 100) for share in (50, 95, 99)}
        return {
            "rate": self.rate,
            "answered": len(self.seconds),
            "failed": self.num_failed,
            "answered_per_second": self.answered_per_second,
            **times,
        }


async def arrive(url: str, bodies: Iterator[Body], rate: float, duration: float) -> Arrivals:
    """Send Poisson arrivals for so many seconds; wait for all answers."""
    pauses, seconds, failed = random.Random(0), list[float](), list[Exception]()
    async with _session() as session:

        async def send(body: Body, due: float) -> None:
            try:
                await _post(session, url, body)
                seconds.append(time.perf_counter() - due)
            except (aiohttp.ClientError, TimeoutError) as error:
                failed.append(error)

        async with asyncio.TaskGroup() as group:
            started = due = time.perf_counter()
            while due < started + duration:
                await asyncio.sleep(due - time.perf_counter())
                group.create_task(send(next(bodies), due))
                due += pauses.expovariate(rate)
    elapsed = time.perf_counter() - started
    return Arrivals(rate, seconds, len(failed), len(seconds) / elapsed)


async def stream(url: str, bodies: Iterator[Body], users: int, num_each: int) -> float:
    """Have users ask and wait, so many times each; return generated tokens a second."""
    async with _session() as session:

        async def ask() -> int:
            answers = [await _post(session, url, next(bodies)) for _ in range(num_each)]
            return sum(int(answer["usage"]["completion_tokens"]) for answer in answers)

        started = time.perf_counter()
        tokens = await asyncio.gather(*(ask() for _ in range(users)))
        return sum(tokens) / (time.perf_counter() - started)


def numbered(texts: list[str], make: Callable[[str], Body]) -> Iterator[Body]:
    """Ask for the texts again and again, each time with another number, so that none is cached."""
    for number in count():
        yield make(f"{texts[number % len(texts)].rstrip('.')} {number}.")


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
    )


async def _post(session: aiohttp.ClientSession, url: str, body: Body) -> dict[str, Any]:
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        answer: dict[str, Any] = await response.json()
        return answer

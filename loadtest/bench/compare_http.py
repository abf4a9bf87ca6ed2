"""Measures servers over HTTP: sentences at a rate, and completions of a number of users."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from statistics import median
from typing import Any

import aiohttp
import click

from loadtest.bench.compare_engines import SkippedPeer
from loadtest.bench.compare_memory import Memory
from loadtest.bench.compare_report import PeerEntry, Row
from loadtest.bench.compare_servers import ComparedServer
from loadtest.bench.compare_workloads import Workload

Body = dict[str, Any]
TIMEOUT_SECONDS = 600.0  # a long prompt behind those of 31 other users


@dataclass(frozen=True)
class Arrivals:
    """The results of requests sent at a rate: the seconds of those that were answered."""

    rate: float
    seconds: list[float]
    num_failed: int
    answered_per_second: float

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0

    def is_sustained(self, limit_seconds: float) -> bool:
        """Return whether all were answered, 95 of 100 within the limit."""
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
    """Send Poisson arrivals for this many seconds; wait for all answers."""
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


@dataclass(frozen=True)
class Completion:
    """A streamed completion, and its times in seconds from the request.

    num_cached: tokens of the prompt that the server did not read again.
    """

    num_tokens: int
    num_prompt_tokens: int
    num_cached: int
    first_seconds: float
    seconds: float

    @property
    def decode_rate(self) -> float:
        """Return the tokens per second after the first one."""
        return (self.num_tokens - 1) / (self.seconds - self.first_seconds)


async def complete(session: aiohttp.ClientSession, url: str, body: Body) -> Completion:
    """Stream a completion. Raises ClickException if it has not as many tokens as were asked for."""
    started, first_seconds = time.perf_counter(), None
    usage: dict[str, Any] = {}
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            if first_seconds is None and any(choice["text"] for choice in chunk["choices"]):
                first_seconds = time.perf_counter() - started
            usage = chunk.get("usage") or usage
    num_tokens = usage.get("completion_tokens", 0)
    if first_seconds is None or num_tokens != body["max_tokens"]:
        message = f"{url} sent {num_tokens} of {body['max_tokens']} tokens"
        raise click.ClickException(message)
    details = usage.get("prompt_tokens_details") or {}
    return Completion(
        num_tokens,
        usage["prompt_tokens"],
        details.get("cached_tokens") or 0,
        first_seconds,
        time.perf_counter() - started,
    )


async def complete_for_users(
    url: str, bodies: Iterator[Body], num_users: int, num_each: int
) -> list[Completion]:
    """Run users who each send a number of requests one after another."""
    # llama.cpp's server closes connections without saying so.
    async with _session(reuses_connections=False) as session:

        async def ask() -> list[Completion]:
            return [await complete(session, url, next(bodies)) for _ in range(num_each)]

        users = await asyncio.gather(*(ask() for _ in range(num_users)))
    return [completion for user in users for completion in user]


def number_bodies(texts: list[str], make: Callable[[str], Body]) -> Iterator[Body]:
    """Yield the texts repeatedly, each with another number, so that none is cached."""
    for number in count():
        yield make(f"{texts[number % len(texts)].rstrip('.')} {number}.")


def _session(reuses_connections: bool = True) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=not reuses_connections),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
    )


async def _post(session: aiohttp.ClientSession, url: str, body: Body) -> dict[str, Any]:
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        answer: dict[str, Any] = await response.json()
        return answer


LIMIT_SECONDS = 1.0
WARM_UP_SECONDS = 3.0
WARM_UP_TOKENS = 8  # of a prompt and of its completion


@dataclass(frozen=True)
class MeasuredRate:
    """The result of one run of a server: its speed, and the numbers behind it.

    first_seconds: the median time to the first token, if tokens are streamed.
    decode_rate: the median of a stream's tokens per second after the first one.
    """

    rate: float
    raw: Any
    first_seconds: float | None = None
    decode_rate: float | None = None
    memory: Memory | None = None


Measure = Callable[[str], MeasuredRate]


def compete_over_http(
    workload: Workload,
    unit: str,
    measure: Measure,
    ours: ComparedServer,
    theirs: Sequence[ComparedServer],
    num_rounds: int,
    cores: set[int],
) -> Row:
    """Race ours against the best of a peer's servers. Raises SkippedPeer."""

    def run(server: ComparedServer) -> MeasuredRate:
        with server.running(cores) as running:
            return replace(measure(running.url), memory=Memory.of_server(running.pid))

    pair = [ours, _fastest(theirs, run)]
    rounds = [[run(server) for server in pair] for _ in range(num_rounds)]
    for server, measures in zip(pair, zip(*rounds, strict=True), strict=True):
        if not all(measure.rate for measure in measures):
            raise SkippedPeer(f"{server.name} sustained no rate: give lower --rates")
    measured = zip(*rounds, strict=True)
    first, second = (
        _entry(*server_and_measures) for server_and_measures in zip(pair, measured, strict=True)
    )
    return Row(workload, unit, first, second)


def _entry(server: ComparedServer, measures: Sequence[MeasuredRate]) -> PeerEntry:
    return PeerEntry(
        server.name,
        server.setting,
        [measure.rate for measure in measures],
        first_seconds=[m.first_seconds for m in measures if m.first_seconds is not None],
        decode_rates=[m.decode_rate for m in measures if m.decode_rate is not None],
        memory=[m.memory for m in measures if m.memory is not None],
        raw=[measure.raw for measure in measures],
    )


def _fastest(
    servers: Sequence[ComparedServer], run: Callable[[ComparedServer], MeasuredRate]
) -> ComparedServer:
    if len(servers) == 1:
        return servers[0]
    return max(servers, key=lambda server: run(server).rate)


def measure_sustained_rate(
    texts: list[str], body: Body, rates: Sequence[float], seconds: float
) -> Measure:
    """Return what finds the most sentences a second with 95 of 100 answered within a second: rates
    rise until one is too much.
    """

    def measure(url: str) -> MeasuredRate:
        bodies: Iterator[Body] = number_bodies(texts, lambda text: {"q": text, **body})
        url += "/translate"
        asyncio.run(arrive(url, bodies, rates[0], WARM_UP_SECONDS))
        best, raw = 0.0, []
        for rate in rates:
            arrivals = asyncio.run(arrive(url, bodies, rate, seconds))
            raw.append(arrivals.as_json())
            click.echo(f"  {rate:g}/s: p95 {arrivals.percentile(0.95):.2f} s", err=True)
            if not arrivals.is_sustained(LIMIT_SECONDS):
                break
            best = arrivals.answered_per_second
        else:
            click.echo(
                "  every rate was sustained: it could do more, give higher --rates",
                err=True,
            )
        return MeasuredRate(best, raw)

    return measure


def measure_streams(
    prompts: Callable[[], Iterator[list[int]]], body: Body, num_users: int, num_each: int
) -> Measure:
    """Return a function that measures the tokens per second of a number of users who wait for their
    completions.

    prompts: yields the same token ids for every server, none with a beginning that came before.
    num_each: completions of each user.
    """
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    few = {"max_tokens": WARM_UP_TOKENS}

    def measure(url: str) -> MeasuredRate:
        url += "/v1/completions"
        ids = prompts()
        short = ({**body, **few, "prompt": next(ids)[:WARM_UP_TOKENS]} for _ in range(num_users))
        asyncio.run(complete_for_users(url, short, num_users, 1))
        bodies = ({**body, "prompt": prompt} for prompt in ids)
        started = time.perf_counter()
        completions = asyncio.run(complete_for_users(url, bodies, num_users, num_each))
        seconds = time.perf_counter() - started
        return MeasuredRate(
            sum(completion.num_tokens for completion in completions) / seconds,
            {"users": num_users, "completions": [*map(asdict, completions)]},
            median(completion.first_seconds for completion in completions),
            median(completion.decode_rate for completion in completions),
        )

    return measure

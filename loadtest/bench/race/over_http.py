"""Races servers: one at a time on the same cores, by turns, each at its best setting."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from loadtest.bench.race.players import SkippedPeer
from loadtest.bench.race.results import Entry, Row
from loadtest.bench.race.senders import Body, arrive, numbered, stream
from loadtest.bench.race.servers import Server
from loadtest.bench.race.workloads import Workload

LIMIT_SECONDS = 1.0
WARM_UP_SECONDS = 3.0
STREAMS_EACH = 4  # completions of a user in one turn


@dataclass(frozen=True)
class Measured:
    """Holds what one run of a server showed: its speed, and the numbers behind it."""

    rate: float
    raw: Any


Measure = Callable[[str], Measured]


def compete_over_http(
    workload: Workload,
    unit: str,
    measure: Measure,
    ours: Server,
    theirs: Sequence[Server],
    num_rounds: int,
    cores: set[int],
) -> Row:
    """Race ours against the best of a peer's servers. Raises SkippedPeer."""

    def run(server: Server) -> Measured:
        with server.running(cores) as url:
            return measure(url)

    pair = [ours, _fastest(theirs, run)]
    rounds = [[run(server) for server in pair] for _ in range(num_rounds)]
    for server, found in zip(pair, zip(*rounds, strict=True), strict=True):
        if not all(each.rate for each in found):
            raise SkippedPeer(f"{server.name} sustained no rate: give lower --rates")
    measured = zip(*rounds, strict=True)
    first, second = (_entry(*each) for each in zip(pair, measured, strict=True))
    return Row(workload, unit, first, second)


def _entry(server: Server, found: Sequence[Measured]) -> Entry:
    rates, raw = [each.rate for each in found], [each.raw for each in found]
    return Entry(server.name, server.setting, rates, raw=raw)


def _fastest(servers: Sequence[Server], run: Callable[[Server], Measured]) -> Server:
    if len(servers) == 1:
        return servers[0]
    return max(servers, key=lambda server: run(server).rate)


def sustained(texts: list[str], body: Body, rates: Sequence[float], seconds: float) -> Measure:
    """Return what finds the most sentences a second with 95 of 100 answered within a second: rates
    rise until one is too much.
    """

    def measure(url: str) -> Measured:
        bodies: Iterator[Body] = numbered(texts, lambda text: {"q": text, **body})
        url += "/translate"
        asyncio.run(arrive(url, bodies, rates[0], WARM_UP_SECONDS))
        best, raw = 0.0, []
        for rate in rates:
            found = asyncio.run(arrive(url, bodies, rate, seconds))
            raw.append(found.as_json())
            click.echo(f"  {rate:g}/s: p95 {found.percentile(0.95):.2f} s", err=True)
            if not found.is_sustained(LIMIT_SECONDS):
                break
            best = found.answered_per_second
        else:
            click.echo(
                "  every rate was sustained: it could do more, give higher --rates", err=True
            )
        return Measured(best, raw)

    return measure


def streamed(prompts: list[str], body: Body, users: int) -> Measure:
    """Return what finds the tokens a second of so many users who wait for their completions."""

    def measure(url: str) -> Measured:
        bodies = numbered(prompts, lambda prompt: {"prompt": prompt, **body})
        url += "/v1/completions"
        asyncio.run(stream(url, bodies, users, 1))
        rate = asyncio.run(stream(url, bodies, users, STREAMS_EACH))
        return Measured(rate, {"users": users})

    return measure

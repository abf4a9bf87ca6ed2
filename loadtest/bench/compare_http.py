"""Starts the servers that are raced over HTTP, one at a time, on the same cores, and stops them.

Ours is `attendant serve` as it comes. Against it stands the least that one would write around
CTranslate2, with dynamic batching (`loadtest/bench/peers/ctranslate2_server.py`), and
llama-cpp-python's own server.
"""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import click

from loadtest.bench.compare_engines import (
    PEERS_FOLDER,
    Setup,
    SkippedPeer,
    ctranslate2_settings,
    in_words,
    pin_to_cores,
)
from loadtest.bench.compare_report import PeerEntry, Row
from loadtest.bench.compare_workloads import Workload

START_SECONDS = 180.0
STOP_SECONDS = 60.0
NOT_INSTALLED = 3  # the exit code of a server whose package is missing


@dataclass(frozen=True)
class ComparedServer:
    """A server of a comparison.

    command: {port} stands for its port.
    ready: a path that answers when the server is ready.
    """

    name: str
    setting: str
    command: tuple[str, ...]
    ready: str

    @contextmanager
    def running(self, cores: set[int]) -> Iterator[str]:
        """Return a context with the address of the running server. Raises SkippedPeer if something
        that it needs is not installed.
        """
        port = _free_port()
        command = [word.replace("{port}", str(port)) for word in self.command]
        with pin_to_cores(cores):
            process = subprocess.Popen(
                command, stdout=sys.stderr, stderr=sys.stderr, process_group=0
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(self.name, process, url + self.ready)
            yield url
        finally:
            _stop(process)


def attendant_server(setup: Setup) -> ComparedServer:
    command = (sys.executable, "-m", "serving.cli", "serve", str(setup.bundle), "--port", "{port}")
    return ComparedServer("attendant", "attendant serve as it comes", command, "/ready")


def ctranslate2_servers(model: Path, setup: Setup) -> list[ComparedServer]:
    """Return the server over CTranslate2 in every setting."""
    script = (setup.interpreter, str(PEERS_FOLDER / "ctranslate2_server.py"), str(model), "{port}")
    cores = str(len(setup.cores))
    return [
        ComparedServer(
            "ctranslate2",
            f"dynamic batching, {in_words(setting)}",
            (*script, str(setting["workers"]), cores, str(setting["compute_type"])),
            "/health",
        )
        for setting in ctranslate2_settings(setup)
    ]


def llama_cpp_servers(model: Path, setup: Setup) -> list[ComparedServer]:
    script = (setup.interpreter, "-m", "llama_cpp.server", "--model", str(model))
    options = ("--n_threads", str(len(setup.cores)), "--n_ctx", str(setup.context))
    command = (*script, "--port", "{port}", *options)
    return [ComparedServer("llama.cpp", "its own server", command, "/v1/models")]


SERVERS = {"ctranslate2": ctranslate2_servers, "llama.cpp": llama_cpp_servers}


def _wait(name: str, process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() == NOT_INSTALLED:
            raise SkippedPeer("its server needs packages that are not installed, see above")
        if process.poll() is not None:
            message = f"the server of {name} ended with code {process.returncode}, see above"
            raise click.ClickException(message)
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise click.ClickException(f"the server of {name} was not ready in {START_SECONDS:.0f} s")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End it with the processes that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


Body = dict[str, Any]
TIMEOUT_SECONDS = 60.0


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


async def stream(url: str, bodies: Iterator[Body], users: int, num_each: int) -> float:
    """Run users who each send a number of requests one after another; return generated tokens per
    second.
    """
    async with _session() as session:

        async def ask() -> int:
            answers = [await _post(session, url, next(bodies)) for _ in range(num_each)]
            return sum(int(answer["usage"]["completion_tokens"]) for answer in answers)

        started = time.perf_counter()
        tokens = await asyncio.gather(*(ask() for _ in range(users)))
        return sum(tokens) / (time.perf_counter() - started)


def number_bodies(texts: list[str], make: Callable[[str], Body]) -> Iterator[Body]:
    """Yield the texts repeatedly, each with another number, so that none is cached."""
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


LIMIT_SECONDS = 1.0
WARM_UP_SECONDS = 3.0
STREAMS_EACH = 4  # completions of a user in one turn


@dataclass(frozen=True)
class MeasuredRate:
    """The result of one run of a server: its speed, and the numbers behind it."""

    rate: float
    raw: Any


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
        with server.running(cores) as url:
            return measure(url)

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
    rates, raw = [measure.rate for measure in measures], [measure.raw for measure in measures]
    return PeerEntry(server.name, server.setting, rates, raw=raw)


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


def measure_streams(prompts: list[str], body: Body, users: int) -> Measure:
    """Return a function that measures the tokens per second of a number of users who wait for their
    completions.
    """

    def measure(url: str) -> MeasuredRate:
        bodies = number_bodies(prompts, lambda prompt: {"prompt": prompt, **body})
        url += "/v1/completions"
        asyncio.run(stream(url, bodies, users, 1))
        rate = asyncio.run(stream(url, bodies, users, STREAMS_EACH))
        return MeasuredRate(rate, {"users": users})

    return measure

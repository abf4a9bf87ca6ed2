"""Closed loops: a constant number of requests is in flight; the next one is submitted when one
ends.

All figures are computed from the raw times of steps and tokens.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from serving.engine.engine import Engine
from serving.engine.runtime.machine import shorten_switch_interval
from serving.requests.request import Event, FailedEvent, FinishedEvent, GenerationRequest, is_final


@dataclass(frozen=True)
class Result:
    """The figures of one batch size. Times to the first token count from submission."""

    batch: int
    requests: int
    seconds: float
    generated_tokens: int
    tokens_per_second: float
    sentences_per_second: float
    mean_rows: float
    step_ms: dict[str, float]
    host_ms: dict[str, float]
    first_token_ms: dict[str, float]
    phase_seconds: dict[str, float]

    @property
    def line(self) -> str:
        return (
            f"batch {self.batch:3}: {self.tokens_per_second:9.1f} tokens/s"
            f" {self.sentences_per_second:8.2f} sentences/s"
            f" | step ms p50 {self.step_ms['p50']:.2f} p99 {self.step_ms['p99']:.2f}"
            f" (host {self.host_ms['p50']:.3f})"
            f" | first token ms p50 {self.first_token_ms['p50']:.1f}"
            f" p99 {self.first_token_ms['p99']:.1f} | {self.requests} requests"
        )


def run_closed_loop(
    engine: Engine, requests: Sequence[GenerationRequest], num_in_flight: int
) -> Result:
    """Keep a constant number of requests in flight on one engine."""
    return run_side_by_side([engine], requests, num_in_flight)


def run_side_by_side(
    engines: Sequence[Engine], requests: Sequence[GenerationRequest], num_in_flight: int
) -> Result:
    """Keep a constant number of requests in flight on several engines, and measure the time."""
    started = time.perf_counter()
    watches = [Stopwatch(engine) for engine in engines]
    drive_side_by_side(watches, requests, num_in_flight)
    return result_of(watches, num_in_flight, time.perf_counter() - started)


class Driver(Protocol):
    """Drives an engine."""

    @property
    def has_work(self) -> bool: ...

    def submit(self, requests: Sequence[GenerationRequest]) -> None: ...

    def step(self) -> int:
        """Take a step and return how many requests ended."""


def drive_side_by_side(
    drivers: Sequence[Driver], requests: Sequence[GenerationRequest], num_in_flight: int
) -> None:
    """Keep a constant number of requests in flight, spread evenly over engines with a thread each;
    an engine takes the next request when one of its own ends. A single engine runs on the caller's
    thread, because CUDA graphs belong to the thread that recorded them.
    """
    shorten_switch_interval()
    waiting, lock = iter(requests), threading.Lock()

    def submit(driver: Driver, count: int) -> None:
        with lock:
            admitted = list(islice(waiting, count))
        driver.submit(admitted)

    def drive(number: int, driver: Driver) -> None:
        submit(driver, len(range(number, num_in_flight, len(drivers))))
        while driver.has_work:
            submit(driver, driver.step())

    if len(drivers) == 1:
        drive(0, drivers[0])
    else:
        with ThreadPoolExecutor(len(drivers)) as pool:
            list(pool.map(drive, range(len(drivers)), drivers))  # raises what a thread has raised


class Stopwatch:
    """Drives an engine and keeps the raw times."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._submitted: dict[str, float] = {}
        self.first_token_seconds: dict[str, float] = {}
        self.step_seconds: list[float] = []
        self.host_seconds: list[float] = []
        self.rows: list[int] = []
        self.phase_seconds: dict[str, float] = defaultdict(float)
        self.num_tokens = 0

    @property
    def num_requests(self) -> int:
        return len(self._submitted)

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        for request in requests:
            self._submitted[request.request_id] = time.perf_counter()
            self._engine.submit(request)

    def step(self) -> int:
        """Take a step and return how many requests ended."""
        started = time.perf_counter()
        events = self._engine.step()
        now = time.perf_counter()
        phases = self._engine.step_stats.phase_seconds
        self.step_seconds.append(now - started)
        self.host_seconds.append(now - started - sum(phases.values()))
        self.rows.append(self._engine.step_stats.num_rows)
        for phase, seconds in phases.items():
            self.phase_seconds[phase] += seconds
        return sum(self._read(event, now) for event in events)

    def _read(self, event: Event, now: float) -> bool:
        """Read an event; return whether it ends its request."""
        if isinstance(event, FailedEvent):
            raise event.error
        if not isinstance(event, FinishedEvent):
            return False
        self.num_tokens += event.num_generated_tokens
        # Requests do not stream; the first of their steps is taken to be as long as the others.
        later = event.decode_seconds * (1 - 1 / max(event.num_steps, 1))
        seconds = now - self._submitted[event.request_id] - later
        self.first_token_seconds[event.request_id] = seconds
        return True


def result_of(watches: Sequence[Stopwatch], num_in_flight: int, seconds: float) -> Result:
    """Sum up what engines did side by side."""
    rows = [count for watch in watches for count in watch.rows]
    num_tokens = sum(watch.num_tokens for watch in watches)
    num_requests = sum(watch.num_requests for watch in watches)
    phases: dict[str, float] = defaultdict(float)
    for name, spent in (item for watch in watches for item in watch.phase_seconds.items()):
        phases[name] += spent
    return Result(
        batch=num_in_flight,
        requests=num_requests,
        seconds=round(seconds, 4),
        generated_tokens=num_tokens,
        tokens_per_second=round(num_tokens / seconds, 1),
        sentences_per_second=round(num_requests / seconds, 2),
        mean_rows=round(sum(rows) / len(rows), 2),
        step_ms=percentiles([sample for watch in watches for sample in watch.step_seconds]),
        host_ms=percentiles([sample for watch in watches for sample in watch.host_seconds]),
        first_token_ms=percentiles(
            [sample for watch in watches for sample in watch.first_token_seconds.values()]
        ),
        phase_seconds={name: round(seconds, 4) for name, seconds in phases.items()},
    )


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return percentiles in milliseconds, by nearest rank."""
    ordered = sorted(seconds)
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {
        name: round(ordered[min(int(rank * len(ordered)), len(ordered) - 1)] * 1e3, 3)
        for name, rank in ranks.items()
    }


WARM_UP_STEPS = 50
STEPS = 128

Clock = Callable[[], float]


@dataclass(frozen=True)
class Share:
    """The requests of one engine, and how many of them are in flight."""

    requests: Iterator[GenerationRequest]
    num_in_flight: int


@dataclass(frozen=True)
class Seconds:
    """The time of STEPS steps.

    reading: the part that went into encoding sources and prefilling prompts.
    """

    all: float
    reading: float


def seconds_of_steps(
    engine: Engine, shares: Sequence[Share], clock: Clock = time.perf_counter
) -> Seconds:
    """Time STEPS steps, in each of which every request in flight gets a token.

    clock: another one does not count the reading, which engines time by their own.
    """
    load = SteadyLoad(engine, shares)
    load.run(WARM_UP_STEPS)
    load.reading_seconds = 0.0
    started = clock()
    load.run(STEPS)
    seconds = clock() - started
    end(engine)
    return Seconds(seconds, load.reading_seconds)


def end(engine: Engine) -> None:
    """Empty an engine for another load."""
    engine.cancel_all()
    engine.step()  # reports the cancellations


class SteadyLoad:
    """Drives an engine, and submits a request's successor when it ends."""

    def __init__(self, engine: Engine, shares: Sequence[Share]) -> None:
        self._engine = engine
        self._successors: dict[str, Iterator[GenerationRequest]] = {}
        self.reading_seconds = 0.0
        for share in shares:
            for _ in range(share.num_in_flight):
                self._submit_next(share.requests)

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            for event in self._engine.step():
                if isinstance(event, FailedEvent):
                    raise event.error
                if is_final(event):
                    self._submit_next(self._successors.pop(event.request_id))
            phases = self._engine.step_stats.phase_seconds
            self.reading_seconds += phases.get("encode", 0.0) + phases.get("prefill", 0.0)

    def _submit_next(self, requests: Iterator[GenerationRequest]) -> None:
        request = next(requests)
        self._successors[request.request_id] = requests
        self._engine.submit(request)

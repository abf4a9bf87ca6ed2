"""Runs a closed loop: so many requests are in flight, and the next is submitted when one ends.

Everything is computed from the raw times of steps and tokens.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from serving.engine.engine import Engine
from serving.request import Event, FailedEvent, FinishedEvent, GenerationRequest


@dataclass(frozen=True)
class Result:
    """Holds the figures of one batch size. Times to the first token count from submission."""

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
    watch = Stopwatch(engine)
    waiting = iter(requests)
    watch.submit(islice(waiting, num_in_flight))
    while engine.has_work:
        num_ended = watch.step()
        watch.submit(islice(waiting, num_ended))
    return watch.result(num_in_flight)


class Stopwatch:
    """Drives an engine and keeps the raw times."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._started = time.perf_counter()
        self._submitted: dict[str, float] = {}
        self._first_token_seconds: dict[str, float] = {}
        self._step_seconds: list[float] = []
        self._host_seconds: list[float] = []
        self._rows: list[int] = []
        self._phase_seconds: dict[str, float] = {}
        self._num_tokens = 0

    def submit(self, requests: Iterator[GenerationRequest]) -> None:
        for request in requests:
            self._submitted[request.request_id] = time.perf_counter()
            self._engine.submit(request)

    def step(self) -> int:
        """Take a step and return how many requests ended."""
        started = time.perf_counter()
        events = self._engine.step()
        now = time.perf_counter()
        phases = self._engine.step_stats.phase_seconds
        self._step_seconds.append(now - started)
        self._host_seconds.append(now - started - sum(phases.values()))
        self._rows.append(self._engine.step_stats.num_rows)
        for phase, seconds in phases.items():
            self._phase_seconds[phase] = self._phase_seconds.get(phase, 0.0) + seconds
        return sum(self._read(event, now) for event in events)

    def _read(self, event: Event, now: float) -> bool:
        """Read an event; return whether it ends its request."""
        if isinstance(event, FailedEvent):
            raise event.error
        request_id = event.request_id
        if request_id not in self._first_token_seconds:
            self._first_token_seconds[request_id] = now - self._submitted[request_id]
        if isinstance(event, FinishedEvent):
            self._num_tokens += event.num_generated_tokens
            return True
        return False

    def result(self, num_in_flight: int) -> Result:
        seconds = time.perf_counter() - self._started
        return Result(
            batch=num_in_flight,
            requests=len(self._submitted),
            seconds=round(seconds, 4),
            generated_tokens=self._num_tokens,
            tokens_per_second=round(self._num_tokens / seconds, 1),
            sentences_per_second=round(len(self._submitted) / seconds, 2),
            mean_rows=round(sum(self._rows) / len(self._rows), 2),
            step_ms=percentiles(self._step_seconds),
            host_ms=percentiles(self._host_seconds),
            first_token_ms=percentiles(list(self._first_token_seconds.values())),
            phase_seconds={name: round(each, 4) for name, each in self._phase_seconds.items()},
        )


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return percentiles in milliseconds, by nearest rank."""
    ordered = sorted(seconds)
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {
        name: round(ordered[min(int(rank * len(ordered)), len(ordered) - 1)] * 1e3, 3)
        for name, rank in ranks.items()
    }

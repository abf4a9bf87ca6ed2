"""When requests arrive: open loops, rising rates and recorded traces."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from loadtest.errors import RecordingError, TraceError
from loadtest.plan import ArrivalPlan, Plan
from loadtest.records import Run, read_recording


class Profile(Protocol):
    def time_of(self, expected: float) -> float:
        """Return the time, in seconds, at which so many arrivals are expected."""
        ...


@dataclass(frozen=True, slots=True)
class Flat:
    """Keeps one rate."""

    rate: float

    def time_of(self, expected: float) -> float:
        return expected / self.rate


@dataclass(frozen=True, slots=True)
class Ramp:
    """Keeps one rate until `start`, then goes evenly to another, and keeps that one."""

    rate: float
    to_rate: float
    start: float
    seconds: float

    def time_of(self, expected: float) -> float:
        before = self.rate * self.start
        if expected <= before:
            return expected / self.rate
        during = (self.rate + self.to_rate) / 2 * self.seconds
        rest = expected - before
        if rest > during:
            return self.start + self.seconds + (rest - during) / self.to_rate
        slope = (self.to_rate - self.rate) / self.seconds
        root = sqrt(max(0.0, self.rate**2 + 2 * slope * rest))
        return self.start + 2 * rest / (self.rate + root)


@dataclass(frozen=True, slots=True)
class Step:
    """Keeps one rate until `start`, then another."""

    rate: float
    to_rate: float
    start: float

    def time_of(self, expected: float) -> float:
        rest = expected - self.rate * self.start
        return expected / self.rate if rest <= 0 else self.start + rest / self.to_rate


def profile_of(plan: ArrivalPlan, warm_up: float, duration: float) -> Profile:
    """Make the profile of a plan; a step is in the middle of the window."""
    assert plan.rate is not None, "the command line asks for one"
    if plan.to_rate is None:
        return Flat(plan.rate)
    if plan.kind == "ramp":
        return Ramp(plan.rate, plan.to_rate, warm_up, duration)
    return Step(plan.rate, plan.to_rate, warm_up + duration / 2)


_BLOCK = 1024


def arrival_times(plan: ArrivalPlan, seed: int, warm_up: float, duration: float) -> Iterator[float]:
    """Yield the times at which requests are due, in seconds, until the window's end.

    A ramp or a step belongs to the window; before it the rate is the first one.
    """
    profile = profile_of(plan, warm_up, duration)
    for expected in accumulate(_gaps(plan, np.random.default_rng(seed))):
        time = profile.time_of(expected)
        if time >= warm_up + duration:
            return
        yield time


def _gaps(plan: ArrivalPlan, random: np.random.Generator) -> Iterator[float]:
    draw = _drawing(plan, random)
    while True:
        yield from draw(_BLOCK).tolist()


def _drawing(plan: ArrivalPlan, random: np.random.Generator) -> Callable[[int], np.ndarray]:
    """Return what draws gaps: the gamma's shape is the burstiness, as in vLLM's bench."""
    if plan.kind == "constant":
        return np.ones
    if plan.kind == "gamma":
        shape = plan.burstiness
        assert shape is not None, "the command line asks for one"
        return lambda size: random.gamma(shape, 1 / shape, size)
    return random.standard_exponential


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass(frozen=True, slots=True)
class Arrival:
    """Holds when a request is due, in seconds since the trace began, and what it asked."""

    time: Annotated[float, Field(ge=0)]
    text: str | None = None


_ADAPTER = TypeAdapter(Arrival)


def read_trace(path: Path) -> list[Arrival]:
    """Read a trace; its first request is due at 0. Raises TraceError, naming a broken line."""
    try:
        is_recording = _is_recording(path)
        arrivals = list(_of_recording(path) if is_recording else _of_lines(path))
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    except RecordingError as error:
        raise TraceError(str(error)) from error
    if not arrivals:
        raise TraceError(f"{path} holds no arrivals")
    if len({arrival.text is None for arrival in arrivals}) > 1:
        raise TraceError(f"{path} has texts for some arrivals only")
    arrivals.sort(key=lambda arrival: arrival.time)
    first = arrivals[0].time
    return [Arrival(arrival.time - first, arrival.text) for arrival in arrivals]


def _is_recording(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return f'"record": "{Run.__name__.lower()}"' in file.readline()


def _of_recording(path: Path) -> Iterator[Arrival]:
    for request in read_recording(path).requests:
        yield Arrival(request.intended, request.text)


def _of_lines(path: Path) -> Iterator[Arrival]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                yield _ADAPTER.validate_python(json.loads(line))
            except ValidationError as error:
                first = error.errors()[0]
                name = ".".join(map(str, first["loc"])) or "the line"
                raise TraceError(f"{path}, line {number}: {name}: {first['msg']}") from error
            except ValueError as error:
                raise TraceError(f"{path}, line {number}: not JSON: {error}") from error


def due_times(plan: Plan) -> Iterator[float]:
    """Yield them in order, in seconds since the run began, until the window is over or holds as
    many requests as it is to have.
    """
    in_window = 0
    for time in _times(plan):
        in_window += time >= plan.warm_up_seconds
        if time >= plan.end_seconds or (plan.requests and in_window > plan.requests):
            return
        yield time


def _times(plan: Plan) -> Iterator[float]:
    arrivals = plan.arrivals
    if arrivals.trace is not None:
        return (arrival.time for arrival in read_trace(arrivals.trace))
    return arrival_times(arrivals, plan.work.seed, plan.warm_up_seconds, plan.duration_seconds)


def trace_texts(plan: ArrivalPlan) -> list[str] | None:
    """Return the texts of a trace that has them, in its order; else None."""
    arrivals = read_trace(plan.trace) if plan.trace else []
    texts = [arrival.text for arrival in arrivals if arrival.text is not None]
    return texts or None

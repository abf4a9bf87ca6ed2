"""Keeps a load as it is: always so many requests of each kind in flight, no start, no end."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from serving.engine.engine import Engine
from serving.request import FailedEvent, GenerationRequest, is_final

WARM_UP_STEPS = 50
STEPS = 128

Clock = Callable[[], float]


@dataclass(frozen=True)
class Share:
    """Says which requests come after each other, and how many of them are in flight."""

    requests: Iterator[GenerationRequest]
    num_in_flight: int


@dataclass(frozen=True)
class Seconds:
    """Holds the time of STEPS steps.

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

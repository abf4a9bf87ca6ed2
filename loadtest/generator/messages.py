"""Holds what the processes of the generator say to each other, through pipes.

The one that leads says when to start and when to stop; the others say how far they are.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ready:
    """Says that a process has all it needs to start."""


@dataclass(frozen=True, slots=True)
class Start:
    """Says when the run begins, as a reading of the monotonic clock, which processes share."""

    epoch: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Asks for no more requests; those in flight are to be waited for unless `hangs_up`."""

    hangs_up: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """Holds how far a process is. Times are of its own processor and of its event loop.

    answers, errors, tokens: of requests that have ended. ended_in_window: those after warming up.
    last_due: when the last request was due, once a schedule is at its end.
    """

    sent: int = 0
    in_flight: int = 0
    answers: int = 0
    errors: int = 0
    tokens: int = 0
    ended_in_window: int = 0
    cpu_seconds: float = 0.0
    lag_seconds: float = 0.0
    last_due: float | None = None
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """Says why a process could not go on."""

    reason: str

"""Turns numbers of expected arrivals into times: the inverse of a rate's integral.

With a Poisson process of rate 1 on one side this is an exact inhomogeneous Poisson process on the
other (time-rescaling), so no arrival is drawn and thrown away.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Protocol

from loadtest.plan import ArrivalPlan


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

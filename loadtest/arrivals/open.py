"""Says when requests arrive in an open loop: at a pace of their own, whatever the server does.

An arrival process is a sequence of gaps with mean 1, in units of expected arrivals, and a profile
that says at which time so many arrivals are to be expected (see profiles.py). So every process
can follow every profile, and the times depend on the seed alone.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate

import numpy as np

from loadtest.arrivals.profiles import profile_of
from loadtest.plan import ArrivalPlan

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

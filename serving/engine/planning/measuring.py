"""Measures plans in turns: whatever else the machine does meanwhile disturbs all of them alike."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from serving.engine.planning.figures import Figures, Rounds
from serving.engine.planning.plan import Plan

SECONDS = 2.0  # for all plans of a model, their loading included
ROUNDS = 8
_LONE_SHARE = 0.2  # of the time
_RUNNING_SHARE = 0.5
_MAX_SECONDS_A_RUN = 0.05

Clock = Callable[[], float]
Run = Callable[[float], float]  # for so many seconds


class Measured(Protocol):
    """Is a model under a plan. Its loads are measured after its lone steps."""

    def lone_step(self, seconds: float) -> float:
        """Return the seconds of a step of one row, while nothing else runs."""

    def tokens_per_second(self, seconds: float) -> float:
        """Return what all engines do together, with many rows each."""


def measure(
    plans: Iterable[Plan],
    open_trial: Callable[[Plan], Measured],
    clock: Clock = time.perf_counter,
) -> Figures:
    """Time plans, as many of the first ones as there is time for; none of a model so slow that
    nothing would come of it.
    """
    ends = clock() + SECONDS
    trials: dict[Plan, Measured] = {}
    for plan in plans:
        trials[plan] = open_trial(plan)
        trials[plan].lone_step(0.0)  # the first steps bind their shapes
        if clock() > ends - _RUNNING_SHARE * SECONDS:
            break
    if len(trials) == 1 or clock() > ends:
        return {}
    lone_ends = clock() + _LONE_SHARE * (ends - clock())
    lone = _in_turns({plan: trial.lone_step for plan, trial in trials.items()}, lone_ends, clock)
    for trial in trials.values():
        trial.tokens_per_second(0.0)
        if clock() > ends:
            return {}
    loads = {plan: trial.tokens_per_second for plan, trial in trials.items()}
    load = _in_turns(loads, ends, clock)
    return {plan: Rounds(tuple(load[plan]), tuple(lone[plan])) for plan in trials}


def _in_turns(runs: Mapping[Plan, Run], ends: float, clock: Clock) -> dict[Plan, list[float]]:
    seconds = min(max(ends - clock(), 0.0) / (ROUNDS * len(runs)), _MAX_SECONDS_A_RUN)
    found: dict[Plan, list[float]] = {plan: [] for plan in runs}
    for _ in range(ROUNDS):
        for plan, run in runs.items():
            found[plan].append(run(seconds))
        if clock() > ends:
            break
    return found

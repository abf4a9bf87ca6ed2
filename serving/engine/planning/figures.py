"""Chooses a plan by what plans were measured to do, and keeps to the default in doubt.

The rule: throughput first, but the plan that a lone request waits for at most twice as long as for
the quickest one. Another plan than the default must beat it in nearly every round: on a machine
that is busy with other things rounds differ by chance, and chance must not choose.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from serving.engine.planning.plan import Plan

MIN_ROUNDS = 4
_MIN_GAIN = 1.03
_CLEAR_SHARE = 0.8  # of the rounds
_MAX_LATENCY_LOSS = 2.0
_TOKENS_PER_REQUEST = 32
_HTTP_SECONDS_PER_REQUEST = 0.0022  # of one CPU: 2.0 on the event loop and 0.2 ms in HAProxy
_WORTH_A_CPU = 0.5


@dataclass(frozen=True)
class Rounds:
    """Holds what one plan did in each round: tokens a second at load, seconds of a lone step."""

    tokens_per_second: tuple[float, ...]
    step_seconds: tuple[float, ...]

    @property
    def are_enough(self) -> bool:
        return min(len(self.tokens_per_second), len(self.step_seconds)) >= MIN_ROUNDS

    @property
    def throughput(self) -> float:
        return statistics.median(self.tokens_per_second)

    @property
    def lone_step(self) -> float:
        return statistics.median(self.step_seconds)

    def share_won(self, other: "Rounds") -> float:
        """Return in which share of the rounds this plan clearly did more, each beside its turn."""
        pairs = list(zip(self.tokens_per_second, other.tokens_per_second, strict=False))
        return sum(own > _MIN_GAIN * others for own, others in pairs) / len(pairs)


Figures = Mapping[Plan, Rounds]  # all plans' rounds were run in turns


@dataclass(frozen=True)
class Choice:
    """is_clear: the rounds agree. Otherwise it is the default for want of a better one."""

    plan: Plan
    is_clear: bool


def choose(default: Plan, figures: Figures) -> Choice:
    """Return the best plan of those that were measured often enough, the default if none was."""
    known = {plan: rounds for plan, rounds in figures.items() if rounds.are_enough}
    if default not in known:
        return Choice(default, is_clear=False)
    bound = _MAX_LATENCY_LOSS * min(rounds.lone_step for rounds in known.values())
    quick = [plan for plan, rounds in known.items() if rounds.lone_step <= bound]
    if default not in quick:
        return Choice(max(quick, key=lambda plan: known[plan].throughput), is_clear=True)
    won = {plan: known[plan].share_won(known[default]) for plan in quick if plan != default}
    better = [plan for plan, share in won.items() if share >= _CLEAR_SHARE]
    best = max(better, key=lambda plan: known[plan].throughput, default=default)
    return Choice(best, bool(better) or all(each <= 1 - _CLEAR_SHARE for each in won.values()))


def http_keeps_a_cpu(cpus: int, plan: Plan, figures: Figures) -> bool:
    """Tell whether requests come so fast from this plan that HTTP is busy with them most of the
    time: then engines on all CPUs only keep it waiting.
    """
    if cpus == 1 or plan not in figures:
        return False
    requests_per_second = figures[plan].throughput / _TOKENS_PER_REQUEST
    return requests_per_second * _HTTP_SECONDS_PER_REQUEST >= _WORTH_A_CPU

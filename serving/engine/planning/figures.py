"""Chooses a plan by what plans were measured to do, and keeps to the default in doubt.

The rule: throughput first, but the plan that a lone request waits for at most twice as long as for
the quickest one. Another plan than the default must beat it in nearly every round: on a machine
that is busy with other things rounds differ by chance, and chance must not choose. Engines of more
threads must beat it by more where HTTP runs beside them, which is not there when plans are measured
and takes a CPU from them now and then, while all their threads wait.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from serving.engine.planning.plan import Plan

MIN_ROUNDS = 4
_MIN_GAIN = 1.03
_MIN_GAIN_OF_MORE_THREADS_BESIDE_HTTP = 1.25
_CLEAR_SHARE = 0.8  # of the rounds
_MAX_LATENCY_LOSS = 2.0


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

    def share_won(self, other: "Rounds", min_gain: float) -> float:
        """Return in which share of the rounds this plan did more by that much, each beside its
        turn.
        """
        pairs = list(zip(self.tokens_per_second, other.tokens_per_second, strict=False))
        return sum(own > min_gain * others for own, others in pairs) / len(pairs)


Figures = Mapping[Plan, Rounds]  # all plans' rounds were run in turns


@dataclass(frozen=True)
class Choice:
    """is_clear: the rounds agree. Otherwise it is the default for want of a better one."""

    plan: Plan
    is_clear: bool


def choose(default: Plan, figures: Figures, serves_http: bool = False) -> Choice:
    """Return the best plan of those that were measured often enough, the default if none was."""
    known = {plan: rounds for plan, rounds in figures.items() if rounds.are_enough}
    if default not in known:
        return Choice(default, is_clear=False)
    bound = _MAX_LATENCY_LOSS * min(rounds.lone_step for rounds in known.values())
    quick = [plan for plan, rounds in known.items() if rounds.lone_step <= bound]
    if default not in quick:
        return Choice(max(quick, key=lambda plan: known[plan].throughput), is_clear=True)
    won = {
        plan: known[plan].share_won(known[default], _min_gain(plan, default, serves_http))
        for plan in quick
        if plan != default
    }
    better = [plan for plan, share in won.items() if share >= _CLEAR_SHARE]
    best = max(better, key=lambda plan: known[plan].throughput, default=default)
    return Choice(best, bool(better) or all(each <= 1 - _CLEAR_SHARE for each in won.values()))


def _min_gain(plan: Plan, default: Plan, serves_http: bool) -> float:
    if serves_http and plan.threads > default.threads:
        return _MIN_GAIN_OF_MORE_THREADS_BESIDE_HTTP
    return _MIN_GAIN

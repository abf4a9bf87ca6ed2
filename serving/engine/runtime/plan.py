"""The execution plan of a model: how many engines run side by side, with how many threads each.

One engine with many threads answers a lone request soonest. Engines of one thread each have the
highest throughput, as no thread waits for another, and one computes while another's Python runs.
The outputs are the same, byte for byte, under any plan.

Plans are measured in turns, so that other load on the machine disturbs all of them alike. The rule:
throughput first, but a lone request may take at most twice as long as under the quickest plan.
Another plan than the default must win in nearly every round, so that chance does not decide; more
threads must win by more where HTTP, which is not measured, needs a CPU too. Measurements are cached
per user, for one bundle (byte for byte), processor, number of CPUs and set of software versions.
"""

import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from serving.bundle.manifest import MANIFEST_FILE
from serving.bundle.opening import Bundle
from serving.engine.runtime.machine import processor_name

# Of an engine where nothing was measured, at most: the small operators of a step gain little from
# more.
DEFAULT_THREADS = 4
# Side by side at least, where there are CPUs for them. Over HTTP on two CPUs, two engines of one
# thread answer up to 1.6 times as many requests as one of two threads: its threads wait for each
# other whenever HTTP has one of the CPUs.
DEFAULT_ENGINES = 2


class Origin(StrEnum):
    """Says how a plan came about."""

    GIVEN = "given"
    ONLY = "only one possible"
    MEASURED = "measured"
    KEPT = "measured at an earlier start"
    DEFAULT = "default"
    UNCLEAR = "default, as measuring showed no clear difference"


@dataclass(frozen=True)
class Plan:
    engines: int
    threads: int

    def __str__(self) -> str:
        return f"{_counted(self.engines, 'engine')}, {_counted(self.threads, 'thread')} each"

    @property
    def num_threads(self) -> int:
        return self.engines * self.threads


@dataclass(frozen=True)
class Allowance:
    """Says what a model may use, and what is decided already.

    cpus: for all of its engines together, and for HTTP where it is served.
    engines, threads: None is to be chosen.
    serves_http: HTTP runs beside the engines, on the same CPUs.
    measures: whether there is time to measure the model.
    """

    cpus: int
    engines: int | None = None
    threads: int | None = None
    serves_http: bool = False
    measures: bool = False

    @property
    def given(self) -> Plan | None:
        """Return the plan that what is decided already leaves, if it leaves but one."""
        if self.engines is not None:
            return Plan(self.engines, self.threads or max(1, self.cpus // self.engines))
        if self.threads is not None:
            return Plan(max(1, self.cpus // self.threads), self.threads)
        return None


def spread(cpus: int, threads: int) -> Plan:
    """Return the plan that fills so many CPUs with engines of about so many threads."""
    engines = max(1, int(cpus / threads + 0.5))
    return Plan(engines, max(1, cpus // engines))


def default_plan(cpus: int) -> Plan:
    return spread(cpus, min(DEFAULT_THREADS, max(1, cpus // DEFAULT_ENGINES)))


def unmeasured_plan(allowance: Allowance) -> Plan:
    """Return what is best where nothing was measured. Without HTTP nobody waits for one request
    alone, so a few CPUs get an engine each; many engines would each read all weights for few rows.
    """
    if allowance.serves_http or allowance.cpus > DEFAULT_THREADS:
        return default_plan(allowance.cpus)
    return spread(allowance.cpus, 1)


def candidates(cpus: int) -> list[Plan]:
    """List the plans to be measured, the default first."""
    others = (spread(cpus, threads) for threads in (1, 2, DEFAULT_THREADS, 2 * DEFAULT_THREADS))
    return list(dict.fromkeys([default_plan(cpus), *others]))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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


_FORMAT = 1


class FiguresFile:
    """Is where the figures of one bundle on so many of this machine's CPUs are kept."""

    def __init__(self, bundle: Bundle, cpus: int, folder: Path | None = None) -> None:
        manifest = bundle.folder / MANIFEST_FILE  # it holds the checksums of all other files
        key = (
            _FORMAT,
            hashlib.sha256(manifest.read_bytes()).hexdigest(),
            processor_name(),
            os.cpu_count(),
            cpus,
            version("attendant"),
            version("onnxruntime"),
        )
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        self._path = (folder or cache_folder()) / f"{digest[:32]}.json"

    def read(self) -> Figures:
        """Return what is kept; nothing where there is nothing that can be read."""
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            return {_plan(each["plan"]): _rounds(each["rounds"]) for each in document}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def write(self, figures: Figures) -> None:
        """Keep figures, where that can be done: without them the next start measures again."""
        kept = [{"plan": asdict(plan), "rounds": asdict(each)} for plan, each in figures.items()]
        beside = self._path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(kept), encoding="utf-8")
            beside.replace(self._path)


def cache_folder() -> Path:
    """Return this user's: beneath $XDG_CACHE_HOME (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "attendant" / "plans"


def _plan(value: dict[str, int]) -> Plan:
    return Plan(int(value["engines"]), int(value["threads"]))


def _rounds(value: dict[str, Sequence[float]]) -> Rounds:
    return Rounds(
        *(tuple(map(float, value[name])) for name in ("tokens_per_second", "step_seconds"))
    )

"""Choose the execution plan of a model: how many engines of how many threads each.

One engine with many threads answers a single request soonest. Engines of one thread each have the
highest throughput, because no thread waits for another, and one computes while another's Python
runs. The outputs are the same, byte for byte, under any plan.

The rule: the highest throughput wins, and an engine that works alone is lent the threads of the
plan whose steps of one row are shortest. Where threads cannot be lent, because each number of
threads needs weights of its own in memory, a step of one row may take at most twice as long as
under that plan. Plans are measured in turns, so that other load on the machine disturbs all of them
alike, and another plan than the default must win in nearly every round.
"""

import hashlib
import json
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Protocol

from serving.bundle.manifest import MANIFEST_FILE, Manifest, Precision
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.machine import free_memory, processor_name
from serving.engine.runtime.sample_requests import SampleRequests
from serving.engine.runtime.session import open_graphs, with_device
from serving.engine.worker import SteppedEngine
from serving.kernels.library import native_kernels, onnxruntime_version
from serving.requests.request import FailedEvent, is_final
from serving.version import VERSION

# The small operators of a step gain little from more threads.
DEFAULT_THREADS = 4
# Over HTTP on two CPUs, two engines of one thread answer up to 1.6 times as many requests as one
# of two threads, which wait for each other whenever HTTP has one of the CPUs.
DEFAULT_ENGINES = 2
# A measurement delays the first start of a server. Without the loading of graphs it may take this
# long, and as long as this many steps of one row. Rounds are short: other load on the machine then
# falls on all plans of a round alike.
MAX_SECONDS, MAX_STEPS = 2.0, 120
# Of the free memory, for the graphs of all plans at once: each has its weights twice for a while.
_SHARE_OF_MEMORY = 0.4
# No more plans are loaded after this time; a machine with many CPUs has four.
MAX_LOADING_SECONDS = 30.0
ROUNDS = 8
_SECONDS_OF_SINGLE_STEPS, _SECONDS_AT_LOAD = 0.01, 0.02
_ROWS_PER_CPU = 16  # a loaded server has about as many
# The prompts of as many rows would take most of the time of a large model's measurement.
_LARGE_BYTES, _ROWS_PER_CPU_OF_LARGE = 512 * 2**20, 4
_MIN_STEPS = 2
# On a busy machine rounds differ by chance, and chance must not choose: another plan than the
# default must be better by more than noise, in four rounds of five.
MIN_ROUNDS = 4
_MIN_GAIN = 1.03
_MIN_SHARE_OF_ROUNDS = 0.8
# HTTP, which is not measured, takes a CPU from the engines now and then, while all threads of an
# engine wait for the one that has lost it.
_MIN_GAIN_OF_MORE_THREADS_BESIDE_HTTP = 1.25
_LONG_STEP_SECONDS = 0.02  # beside steps of this length HTTP takes little
_MAX_LATENCY_LOSS = 2.0  # see the rule above
_MIN_GAIN_OF_LENT_THREADS = 1.1  # of a step of one row

Clock = Callable[[], float]
logger = logging.getLogger(__name__)


class Origin(StrEnum):
    """How a plan was chosen."""

    GIVEN = "given"
    ONLY = "only one possible"
    MEASURED = "measured"
    STORED = "measured at an earlier start"
    DEFAULT = "default"


@dataclass(frozen=True)
class ExecutionPlan:
    engines: int
    threads: int

    def __str__(self) -> str:
        engines = "1 engine" if self.engines == 1 else f"{self.engines} engines"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{engines}, {threads} each"

    @property
    def num_threads(self) -> int:
        return self.engines * self.threads


@dataclass(frozen=True)
class CpuBudget:
    """The CPUs that a model may use, and the part of its plan that the user has given.

    cpus: number of CPUs for all engines, and for HTTP if the model is served.
    engines, threads: None if it is to be chosen.
    serves_http: whether HTTP runs on the same CPUs.
    can_measure: whether there is time to measure the model.
    """

    cpus: int
    engines: int | None = None
    threads: int | None = None
    serves_http: bool = False
    can_measure: bool = False

    @property
    def given_plan(self) -> ExecutionPlan | None:
        """Return the plan if the given engines or threads decide it, else None."""
        if self.engines is not None:
            return ExecutionPlan(self.engines, self.threads or max(1, self.cpus // self.engines))
        if self.threads is not None:
            return ExecutionPlan(max(1, self.cpus // self.threads), self.threads)
        return None


def divide_cpus(cpus: int, threads: int) -> ExecutionPlan:
    """Return the plan that fills the CPUs with engines of about this number of threads."""
    engines = max(1, int(cpus / threads + 0.5))
    return ExecutionPlan(engines, max(1, cpus // engines))


def default_plan(cpus: int) -> ExecutionPlan:
    return divide_cpus(cpus, min(DEFAULT_THREADS, max(1, cpus // DEFAULT_ENGINES)))


def unmeasured_plan(budget: CpuBudget) -> ExecutionPlan:
    """Return the plan of a model that is not measured. Without HTTP nobody waits for a single
    request, so each of a few CPUs gets an engine; many engines would each read all weights for few
    rows.
    """
    if budget.serves_http or budget.cpus > DEFAULT_THREADS:
        return default_plan(budget.cpus)
    return divide_cpus(budget.cpus, 1)


def candidate_plans(cpus: int) -> list[ExecutionPlan]:
    """Return the plans to be measured, the default first."""
    sizes = (1, 2, DEFAULT_THREADS, 2 * DEFAULT_THREADS)
    others = (divide_cpus(cpus, threads) for threads in sizes)
    return list(dict.fromkeys([default_plan(cpus), *others]))


@dataclass(frozen=True)
class Round:
    """The throughput of all engines with many rows, and the seconds of a step of one row."""

    tokens_per_second: float
    step_seconds: float


# The i-th rounds of all plans ran one after another.
Measurements = Mapping[ExecutionPlan, Sequence[Round]]


def best_plan(
    default: ExecutionPlan,
    measurements: Measurements,
    serves_http: bool = False,
    lends_threads: bool = False,
) -> ExecutionPlan:
    """Return the best measured plan, or the default if no other is clearly better.

    lends_threads: whether an engine that works alone gets the threads that it needs.
    """
    if _num_rounds(measurements) < MIN_ROUNDS:
        return default
    latency = _medians(measurements, "step_seconds")
    throughput = _medians(measurements, "tokens_per_second")
    shortest = min(latency.values())
    longest = math.inf if lends_threads else _MAX_LATENCY_LOSS * shortest
    quick = [plan for plan in measurements if latency[plan] <= longest]
    has_busy_http = serves_http and shortest < _LONG_STEP_SECONDS

    def is_better(plan: ExecutionPlan) -> bool:
        more_threads = has_busy_http and plan.threads > default.threads
        min_gain = _MIN_GAIN_OF_MORE_THREADS_BESIDE_HTTP if more_threads else _MIN_GAIN
        pairs = zip(measurements[plan], measurements[default], strict=False)
        wins = [
            measured.tokens_per_second > min_gain * default_round.tokens_per_second
            for measured, default_round in pairs
        ]
        return sum(wins) >= _MIN_SHARE_OF_ROUNDS * len(wins)

    better = [plan for plan in quick if default not in quick or is_better(plan)]
    return max(better, key=throughput.__getitem__, default=default)


def threads_of_lone_engine(plan: ExecutionPlan, measurements: Measurements) -> int:
    """Return how many threads an engine of this plan should have while it works alone: its own, or
    those of the plan with the shortest steps of one row.
    """
    if _num_rounds(measurements) < MIN_ROUNDS:
        return plan.threads
    latency = _medians(measurements, "step_seconds")
    quickest = min(latency, key=latency.__getitem__)
    gain = latency[plan] / latency[quickest]
    return max(plan.threads, quickest.threads if gain >= _MIN_GAIN_OF_LENT_THREADS else 0)


def _num_rounds(measurements: Measurements) -> int:
    return min((len(rounds) for rounds in measurements.values()), default=0)


def _medians(measurements: Measurements, name: str) -> dict[ExecutionPlan, float]:
    return {
        plan: statistics.median(getattr(measured, name) for measured in rounds)
        for plan, rounds in measurements.items()
    }


class MeasurablePlan(Protocol):
    def measure(self) -> Round: ...


def measure_plans(
    plans: Iterable[ExecutionPlan],
    open_trial: Callable[[ExecutionPlan], MeasurablePlan],
    clock: Clock = time.perf_counter,
) -> Measurements:
    """Measure plans in turns, as many rounds as there is time for. The first plans are measured, as
    many as are loaded in time, but two at least.
    """
    started = clock()
    trials: dict[ExecutionPlan, MeasurablePlan] = {}
    step_seconds = 0.0
    for plan in plans:
        if len(trials) >= 2 and clock() - started > MAX_LOADING_SECONDS:
            break
        trials[plan] = open_trial(plan)
        first = trials[plan].measure()  # the first steps allocate memory
        step_seconds = max(step_seconds, first.step_seconds)
        logger.info("measuring %s: a step of %.4f s", plan, first.step_seconds)
    ends = clock() + MAX_SECONDS + MAX_STEPS * step_seconds
    rounds: dict[ExecutionPlan, list[Round]] = {plan: [] for plan in trials}
    for _ in range(ROUNDS):
        if clock() > ends:
            break
        for plan, trial in trials.items():
            rounds[plan].append(trial.measure())
    return rounds


class MeasurementFile:
    """The file that stores the measurements of one bundle, for the next start.

    There is a file for each bundle (byte for byte), processor, number of CPUs and set of software
    versions, beneath $XDG_CACHE_HOME (XDG Base Directory Specification).
    """

    def __init__(self, bundle: Bundle, cpus: int) -> None:
        manifest = bundle.folder / MANIFEST_FILE  # it holds the checksums of all other files
        key = (
            hashlib.sha256(manifest.read_bytes()).hexdigest(),
            processor_name(),
            os.cpu_count(),
            cpus,
            VERSION,
            onnxruntime_version(),
        )
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        self._path = cache_folder() / f"{digest[:32]}.json"

    def read_measurements(self) -> Measurements:
        """Return the stored measurements; none if the file is missing or damaged."""
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            return {
                ExecutionPlan(*map(int, plan)): [Round(*map(float, values)) for values in rounds]
                for plan, rounds in document
            }
        except (OSError, ValueError, TypeError):
            return {}

    def write_measurements(self, measurements: Measurements) -> None:
        """Store measurements. If they cannot be written, the next start measures again."""
        document = [
            (astuple(plan), [astuple(measured) for measured in rounds])
            for plan, rounds in measurements.items()
        ]
        temporary = self._path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(document), encoding="utf-8")
            temporary.replace(self._path)


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "attendant" / "plans"


@dataclass(frozen=True)
class PlannedModel:
    """A plan, how it was chosen, and the configuration and graphs of its engines.

    lone_threads: threads of an engine that works alone.
    lone_graphs: the graphs with these threads; None if they are those of the plan.
    """

    plan: ExecutionPlan
    origin: Origin
    config: EngineConfig
    graphs: Graphs
    lone_threads: int = 0
    lone_graphs: Graphs | None = None

    def __str__(self) -> str:
        lent = f", {self.lone_threads} threads for one alone" if self.lone_graphs else ""
        return f"{self.plan}{lent} ({self.origin})"


@dataclass(frozen=True)
class _Choice:
    """A plan, how it was chosen, and the threads of an engine that works alone."""

    plan: ExecutionPlan
    origin: Origin
    lone_threads: int


def plan_model(
    bundle: Bundle,
    config: EngineConfig,
    budget: CpuBudget,
    make_engine: Callable[[EngineConfig, Graphs], SteppedEngine],
) -> PlannedModel:
    """Choose a plan and load its graphs. Raises BundleError or DeviceError."""
    config = with_device(config, bundle.manifest)
    loaded: dict[int, Graphs] = {}

    def graphs_for(threads: int) -> Graphs:
        if threads not in loaded:
            loaded[threads] = open_graphs(bundle, replace(config, threads=threads))
        return loaded[threads]

    def open_trial(plan: ExecutionPlan, rows_per_cpu: int) -> Trial:
        graphs = graphs_for(plan.threads)
        return Trial(
            bundle.manifest,
            config,
            plan,
            lambda trial_config: make_engine(trial_config, graphs),
            rows_per_cpu,
        )

    def measure(plans: Sequence[ExecutionPlan]) -> Measurements:
        num_bytes = _num_bytes(bundle)
        is_large = num_bytes > _LARGE_BYTES
        rows_per_cpu = _ROWS_PER_CPU_OF_LARGE if is_large else _ROWS_PER_CPU
        open_plan = partial(open_trial, rows_per_cpu=rows_per_cpu)
        if _shares_weights(bundle) or len(plans) * num_bytes < _SHARE_OF_MEMORY * free_memory():
            return measure_plans(plans, open_plan)
        measurements: dict[ExecutionPlan, Sequence[Round]] = {}
        for plan in plans:
            loaded.clear()
            measurements |= measure_plans([plan], open_plan)
        loaded.clear()
        return measurements

    choice = _choose_plan(bundle, config, budget, measure)
    plan = choice.plan
    lone_graphs = None
    if choice.lone_threads > plan.threads:
        lone_graphs = graphs_for(choice.lone_threads)
    config, graphs = replace(config, threads=plan.threads), graphs_for(plan.threads)
    return PlannedModel(plan, choice.origin, config, graphs, choice.lone_threads, lone_graphs)


def _choose_plan(
    bundle: Bundle,
    config: EngineConfig,
    budget: CpuBudget,
    measure: Callable[[Sequence[ExecutionPlan]], Measurements],
) -> _Choice:
    def chosen(plan: ExecutionPlan, origin: Origin) -> _Choice:
        return _Choice(plan, origin, plan.threads)

    if config.device != "cpu":
        return chosen(ExecutionPlan(1, budget.threads or budget.cpus), Origin.ONLY)
    if budget.given_plan is not None:
        return chosen(budget.given_plan, Origin.GIVEN)
    default, plans = default_plan(budget.cpus), candidate_plans(budget.cpus)
    if len(plans) == 1:
        return chosen(default, Origin.ONLY)
    if bundle.manifest.audio is not None:
        # Plans are measured by steps, and a window of sound is encoded for longer than all of its
        # steps take. So one engine encodes while another one decodes, or has all threads.
        lone_threads = budget.cpus if _shares_weights(bundle) else default.threads
        return _Choice(default, Origin.DEFAULT, lone_threads)
    file, origin = MeasurementFile(bundle, budget.cpus), Origin.STORED
    measurements = file.read_measurements()
    if not measurements:
        if not budget.can_measure:
            return chosen(unmeasured_plan(budget), Origin.DEFAULT)
        logger.info("%s is measured, once for this machine", bundle.manifest.name)
        measurements, origin = measure(plans), Origin.MEASURED
        if _num_rounds(measurements) >= MIN_ROUNDS:
            file.write_measurements(measurements)
    lends_threads = _shares_weights(bundle) and not bundle.manifest.task.only_encodes
    plan = best_plan(default, measurements, budget.serves_http, lends_threads)
    if not lends_threads:
        return chosen(plan, origin)
    return _Choice(plan, origin, threads_of_lone_engine(plan, measurements))


def _shares_weights(bundle: Bundle) -> bool:
    """Return whether graphs of other threads need little memory: native kernels share weights."""
    is_quantised = bundle.manifest.precision in (Precision.INT8, Precision.INT4)
    return is_quantised and native_kernels().path is not None


def _num_bytes(bundle: Bundle) -> int:
    return sum((bundle.folder / name).stat().st_size for name in bundle.manifest.files)


class Trial:
    """Engines of one plan with sample requests. The engines share nothing but graphs."""

    def __init__(
        self,
        manifest: Manifest,
        config: EngineConfig,
        plan: ExecutionPlan,
        make_engine: Callable[[EngineConfig], SteppedEngine],
        rows_per_cpu: int = _ROWS_PER_CPU,
    ) -> None:
        self._rows = rows_per_cpu * plan.threads
        config = replace(
            config,
            slots=self._rows,
            threads=plan.threads,
            max_waiting=None,
            prefix_cache_bytes=0,
            encoder_cache_bytes=0,
        )
        self._single = make_engine(config)
        self._engines = [make_engine(config) for _ in range(plan.engines)]
        self._only_encodes = manifest.task.only_encodes
        self._requests = SampleRequests(manifest)

    def measure(self) -> Round:
        step_seconds = self._step_seconds(self._single, 1, _SECONDS_OF_SINGLE_STEPS)
        fill = partial(self._fill, num_rows=self._rows)
        at_load = partial(self._step_seconds, num_rows=self._rows, seconds=_SECONDS_AT_LOAD)
        with ThreadPoolExecutor(len(self._engines)) as threads:
            list(threads.map(fill, self._engines))
            step_times = threads.map(at_load, self._engines)
            throughput = sum(self._rows / seconds for seconds in step_times)
        return Round(throughput, step_seconds)

    def _step_seconds(self, engine: SteppedEngine, num_rows: int, seconds: float) -> float:
        """Return the mean seconds of a step; an encoder's step encodes `num_rows` requests."""
        self._fill(engine, num_rows)
        started, num_steps = time.perf_counter(), 0
        while num_steps < _MIN_STEPS or time.perf_counter() - started < seconds:
            self._step(engine)
            num_steps += 1
        return (time.perf_counter() - started) / num_steps

    def _fill(self, engine: SteppedEngine, num_rows: int) -> None:
        """Submit requests until `num_rows` have a row, or wait if the engine only encodes."""
        stats = engine.stats()
        for _ in range(num_rows - stats.num_rows - stats.num_waiting):
            engine.submit(next(self._requests))
        while not self._only_encodes and engine.stats().num_waiting:
            self._step(engine)

    def _step(self, engine: SteppedEngine) -> None:
        """Run a step, and submit a request for each one that has ended."""
        for event in engine.step():
            if isinstance(event, FailedEvent):
                raise event.error
            if is_final(event):
                engine.submit(next(self._requests))

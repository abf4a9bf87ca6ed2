"""Which plans there are, which one measurements choose, and how they are taken and kept."""

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime import planning
from serving.engine.runtime.graph import LentThreads
from serving.engine.runtime.planning import (
    MAX_SECONDS,
    MAX_STEPS,
    MIN_ROUNDS,
    ROUNDS,
    CpuBudget,
    ExecutionPlan,
    MeasurementFile,
    Measurements,
    Origin,
    PlannedModel,
    Round,
    Trial,
    best_plan,
    cache_folder,
    candidate_plans,
    default_plan,
    divide_cpus,
    measure_plans,
    threads_of_lone_engine,
    unmeasured_plan,
)
from serving.engine.worker import SteppedEngine
from serving.kernels.library import native_kernels
from serving.pipelines.loading import ModelParts
from tests.serving.engine.toy import toy_bundle, toy_graphs
from tests.tiny import PICTURE_READER, tiny_bundle

MACHINES = [1, 2, 3, 4, 6, 7, 8, 12, 16, 63, 64, 96]
ONE, TWO = ExecutionPlan(1, 2), ExecutionPlan(2, 1)


def rounds(
    throughput: float, step: float, noise: float = 0.0, seed: int = 0, n: int = 8
) -> list[Round]:
    chance = random.Random(seed)

    def noisy(value: float) -> float:
        return value * chance.uniform(1 - noise, 1 + noise)

    return [Round(noisy(throughput), noisy(step)) for _ in range(n)]


STEADY = {TWO: rounds(1000, 0.006), ONE: rounds(1500, 0.004)}
SERVED = CpuBudget(2, serves_http=True, can_measure=True)


@pytest.mark.parametrize("cpus", MACHINES)
def test_plans_fill_the_cpus_and_candidates_begin_with_the_default(cpus: int) -> None:
    candidates = candidate_plans(cpus)
    for plan in [*candidates, default_plan(cpus), *(divide_cpus(cpus, n) for n in range(1, 9))]:
        assert 1 <= plan.num_threads <= cpus
    assert candidates[0] == default_plan(cpus)
    assert len({*candidates}) == len(candidates) <= 4
    assert ExecutionPlan(cpus, 1) in candidates
    assert default_plan(cpus).engines >= min(2, cpus)
    assert default_plan(cpus).threads <= 4


def test_the_candidates_of_few_and_of_many_cpus() -> None:
    assert candidate_plans(1) == [ExecutionPlan(1, 1)]
    assert candidate_plans(2) == [TWO, ONE]
    assert candidate_plans(4) == [ExecutionPlan(2, 2), ExecutionPlan(4, 1), ExecutionPlan(1, 4)]
    assert candidate_plans(64) == [
        ExecutionPlan(16, 4),
        ExecutionPlan(64, 1),
        ExecutionPlan(32, 2),
        ExecutionPlan(8, 8),
    ]


@pytest.mark.parametrize(
    ("budget", "plan"),
    [
        (CpuBudget(8), None),
        (CpuBudget(8, engines=2), ExecutionPlan(2, 4)),
        (CpuBudget(8, threads=3), ExecutionPlan(2, 3)),
        (CpuBudget(8, engines=3, threads=5), ExecutionPlan(3, 5)),
        (CpuBudget(2, engines=5), ExecutionPlan(5, 1)),
        (CpuBudget(2, threads=5), ExecutionPlan(1, 5)),
    ],
)
def test_given_engines_or_threads_decide_the_plan(
    budget: CpuBudget, plan: ExecutionPlan | None
) -> None:
    assert budget.given_plan == plan


def test_without_http_each_of_few_cpus_gets_an_engine() -> None:
    assert unmeasured_plan(CpuBudget(4)) == ExecutionPlan(4, 1)
    assert unmeasured_plan(CpuBudget(4, serves_http=True)) == ExecutionPlan(2, 2)
    assert unmeasured_plan(CpuBudget(64)) == ExecutionPlan(16, 4)


@pytest.mark.parametrize(
    ("two", "best"),
    [
        (rounds(1250, 0.006), TWO),
        (rounds(900, 0.006), ONE),
        (rounds(1010, 0.006), ONE),  # not enough to decide
        (rounds(1900, 0.009), ONE),  # a single request takes too long
        (rounds(2000, 0.004, n=MIN_ROUNDS - 1), ONE),
    ],
)
def test_the_plan_with_clearly_more_throughput_is_chosen(
    two: list[Round], best: ExecutionPlan
) -> None:
    assert best_plan(ONE, {ONE: rounds(1000, 0.004), TWO: two}) == best


def test_a_default_that_is_too_slow_for_single_requests_is_not_chosen() -> None:
    assert best_plan(ONE, {ONE: rounds(1000, 0.013), TWO: rounds(900, 0.006)}) == TWO
    assert best_plan(ONE, {}) == ONE
    many, some, few = ExecutionPlan(64, 1), ExecutionPlan(32, 2), ExecutionPlan(16, 4)
    figures = {few: rounds(5000, 0.005), many: rounds(9000, 0.015), some: rounds(7000, 0.009)}
    assert best_plan(few, figures) == some


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_rarely_decides_and_a_large_gain_does(seed: int) -> None:
    """Measurements differ by chance, by up to a third."""
    others = 0
    for number in range(0, 400, 2):
        first, second = (rounds(1000, 0.004, 0.33, 10_000 * seed + number + i) for i in (0, 1))
        others += best_plan(ONE, {ONE: first, TWO: second}) != ONE
    assert others <= 20
    for number in range(0, 100, 2):
        first = rounds(1000, 0.004, 0.1, 10_000 * seed + number)
        second = rounds(1400, 0.005, 0.1, 10_000 * seed + number + 1)
        assert best_plan(ONE, {ONE: first, TWO: second}) == TWO


def test_beside_http_more_threads_must_gain_more() -> None:
    figures = {TWO: rounds(1000, 0.006), ONE: rounds(1150, 0.004)}
    assert best_plan(TWO, figures) == ONE
    assert best_plan(TWO, figures, serves_http=True) == TWO
    assert best_plan(TWO, {**figures, ONE: rounds(1300, 0.004)}, serves_http=True) == ONE
    fewer_threads = {ONE: rounds(1000, 0.004), TWO: rounds(1150, 0.006)}
    assert best_plan(ONE, fewer_threads, serves_http=True) == TWO


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("transformer", tmp_path_factory.mktemp("bundle"), Precision.INT8)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Measurements]]:
    """The results of the next measurements; each is used once."""
    results: list[Measurements] = []
    monkeypatch.setattr(planning, "measure_plans", lambda plans, open_trial: results.pop())
    yield results
    assert not results


def planned(folder: Path, budget: CpuBudget) -> PlannedModel:
    return ModelParts.open(folder).plan(EngineConfig(slots=4), budget)


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (CpuBudget(8, engines=2, threads=1, can_measure=True), "2 engines, 1 thread each (given)"),
        (CpuBudget(1, can_measure=True), "1 engine, 1 thread each (only one possible)"),
        (CpuBudget(2), "2 engines, 1 thread each (default)"),
    ],
)
def test_a_plan_that_needs_no_measurement(folder: Path, budget: CpuBudget, text: str) -> None:
    assert str(planned(folder, budget)) == text


@pytest.mark.parametrize("budget", [SERVED, CpuBudget(2)])
def test_models_that_read_sound_are_not_measured(tmp_path: Path, budget: CpuBudget) -> None:
    shares_weights = native_kernels().path is not None
    path = tiny_bundle("whisper", tmp_path, Precision.INT8)
    lent = ", 2 threads for one alone" if shares_weights else ""
    assert str(planned(path, budget)) == f"2 engines, 1 thread each{lent} (default)"


def test_measurements_are_kept(folder: Path, measured: list[Measurements], cache: Path) -> None:
    measured.append(STEADY)
    assert planned(folder, SERVED).origin is Origin.MEASURED
    for budget in (SERVED, CpuBudget(2)):
        again = planned(folder, budget)
        assert (again.plan, again.origin) == (ONE, Origin.STORED)
    assert len([*cache.iterdir()]) == 1


def test_the_same_measurements_may_choose_another_plan_beside_http(
    folder: Path, measured: list[Measurements]
) -> None:
    measured.append({**STEADY, ONE: rounds(1100, 0.004)})
    assert planned(folder, SERVED).plan == TWO
    assert planned(folder, CpuBudget(2)).plan == ONE


def test_each_bundle_and_number_of_cpus_has_measurements_of_its_own(
    folder: Path, tmp_path: Path
) -> None:
    other = tiny_bundle("bahdanau", tmp_path, Precision.INT8)
    MeasurementFile(open_bundle(folder), 2).write_measurements(STEADY)
    assert MeasurementFile(open_bundle(folder), 2).read_measurements() == STEADY
    assert MeasurementFile(open_bundle(folder), 4).read_measurements() == {}
    assert MeasurementFile(open_bundle(other), 2).read_measurements() == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"plan": {}}]', "null", "[[[1], []]]"])
def test_a_damaged_file_is_ignored(text: str, folder: Path, cache: Path) -> None:
    file = MeasurementFile(open_bundle(folder), 2)
    file.write_measurements(STEADY)
    [path] = cache.iterdir()
    path.write_text(text)
    assert file.read_measurements() == {}


def test_a_cache_that_cannot_be_written_is_ignored(folder: Path, cache: Path) -> None:
    cache.parent.parent.mkdir(parents=True)
    cache.parent.write_text("a file where the folder should be")
    MeasurementFile(open_bundle(folder), 2).write_measurements(STEADY)
    assert MeasurementFile(open_bundle(folder), 2).read_measurements() == {}


def test_a_large_model_is_measured_with_fewer_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers_of_rows: list[int] = []
    real_trial = planning.Trial

    def trial(*arguments: Any) -> Trial:
        numbers_of_rows.append(arguments[-1])
        return real_trial(*arguments)

    monkeypatch.setattr(planning, "Trial", trial)
    assert planned(folder, SERVED).origin is Origin.MEASURED
    shutil.rmtree(cache_folder())
    monkeypatch.setattr(planning, "_LARGE_BYTES", 1)
    assert planned(folder, SERVED).origin is Origin.MEASURED
    assert numbers_of_rows == [16, 16, 4, 4]


@pytest.mark.parametrize(
    ("precision", "free", "plans_at_once"),
    [(Precision.FP32, 2**40, 2), (Precision.FP32, 0, 1), (Precision.INT8, 0, 2)],
)
def test_plans_whose_weights_do_not_fit_are_measured_one_after_the_other(
    precision: Precision,
    free: int,
    plans_at_once: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if precision is Precision.INT8 and native_kernels().path is None:
        pytest.skip("without native kernels nothing shares weights")
    calls: list[list[ExecutionPlan]] = []

    def measure(plans: Sequence[ExecutionPlan], open_trial: object) -> Measurements:
        calls.append([*plans])
        return {plan: STEADY[plan] for plan in plans}

    monkeypatch.setattr(planning, "measure_plans", measure)
    monkeypatch.setattr(planning, "free_memory", lambda: free)
    path = tiny_bundle("transformer", tmp_path, precision)
    assert planned(path, SERVED).plan == ONE
    assert [plan for plans in calls for plan in plans] == [TWO, ONE]
    assert {len(plans) for plans in calls} == {plans_at_once}


def test_an_engine_alone_has_the_threads_of_the_shortest_steps(
    folder: Path, measured: list[Measurements]
) -> None:
    if native_kernels().path is None:
        pytest.skip("without native kernels nothing shares weights")
    measured.append({TWO: rounds(1500, 0.009), ONE: rounds(1000, 0.004)})
    lent = planned(folder, SERVED)
    assert str(lent) == "2 engines, 1 thread each, 2 threads for one alone (measured)"
    common, other, small = ModelParts.open(folder).engines(lent, has_engine_for_small_jobs=True)
    assert common.lent_threads == other.lent_threads == LentThreads(1, 2, most_engines=1)
    assert common.lent_threads is not other.lent_threads
    assert small.lent_threads is None


def test_threads_are_lent_for_clearly_shorter_steps_only() -> None:
    assert threads_of_lone_engine(TWO, {TWO: rounds(1500, 0.009), ONE: rounds(900, 0.004)}) == 2
    assert threads_of_lone_engine(TWO, {TWO: rounds(1500, 0.0042), ONE: rounds(900, 0.004)}) == 1
    assert threads_of_lone_engine(ONE, {TWO: rounds(900, 0.003), ONE: rounds(1500, 0.004)}) == 2
    assert threads_of_lone_engine(TWO, {}) == 1


def test_without_lent_threads_a_step_must_not_take_twice_as_long(
    tmp_path: Path, measured: list[Measurements]
) -> None:
    """Each session of an fp32 bundle has its own copy of the weights."""
    path = tiny_bundle("transformer", tmp_path, Precision.FP32)
    measured.append({TWO: rounds(1500, 0.009), ONE: rounds(1000, 0.004)})
    assert str(planned(path, SERVED)) == "1 engine, 2 threads each (measured)"


def test_beside_long_steps_http_does_not_matter() -> None:
    figures = {TWO: rounds(10, 0.2), ONE: rounds(11, 0.1)}
    assert best_plan(TWO, figures, serves_http=True) == ONE


@pytest.mark.parametrize(
    "family", ["transformer", "bahdanau", "llama", "transformer-encoder", PICTURE_READER]
)
def test_any_model_can_be_measured(family: str, tmp_path: Path) -> None:
    """With real graphs: which plan is chosen depends on the machine."""
    path = tiny_bundle(family, tmp_path, Precision.INT8)
    planned_model = planned(path, SERVED)
    assert planned_model.plan.num_threads <= 2
    assert planned_model.origin is Origin.MEASURED


def test_a_trial_measures_all_engines_and_raises_their_errors() -> None:
    engines: list[SteppedEngine] = []

    def make_engine(config: EngineConfig) -> SteppedEngine:
        engines.append(Engine(toy_bundle(), config, toy_graphs()))
        return engines[-1]

    trial = Trial(toy_bundle().manifest, EngineConfig(4, 1), TWO, make_engine)
    measured_round = trial.measure()
    assert measured_round.step_seconds > 0
    assert measured_round.tokens_per_second > 0
    engines[-1].step = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        trial.measure()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowModel:
    """A model that takes its time by a clock of its own."""

    def __init__(self, clock: Clock, loading: float, step: float) -> None:
        self.clock, self.step = clock, step
        clock.now += loading

    def measure(self) -> Round:
        self.clock.now += 2 * self.step
        return Round(1 / self.step, self.step)


@pytest.mark.parametrize(
    ("cpus", "loading", "step", "num_plans", "num_rounds"),
    [
        (2, 0.2, 0.02, 2, ROUNDS),
        (64, 0.01, 0.01, 4, ROUNDS),
        (64, 20.0, 0.01, 2, ROUNDS),
        (2, 50.0, 0.2, 2, ROUNDS),
        (2, 5.0, 5.0, 2, ROUNDS),
    ],
)
def test_a_measurement_ends_in_time(
    cpus: int, loading: float, step: float, num_plans: int, num_rounds: int
) -> None:
    clock = Clock()
    plans = candidate_plans(cpus)
    measurements = measure_plans(plans, lambda plan: SlowModel(clock, loading, step), clock)
    assert [len(rounds) for rounds in measurements.values()] == [num_rounds] * num_plans
    assert clock.now <= num_plans * loading + MAX_SECONDS + MAX_STEPS * step + 2 * 4 * step


def test_rounds_that_take_too_long_are_left_out() -> None:
    clock = Clock()

    class Stalled(SlowModel):
        def measure(self) -> Round:
            clock.now += 100 * self.step
            return Round(1 / self.step, self.step)

    measurements = measure_plans([TWO, ONE], lambda plan: Stalled(clock, 0, 0.1), clock)
    assert [len(rounds) for rounds in measurements.values()] == [1, 1]

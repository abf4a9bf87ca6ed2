"""A model is planned as it is told, as it was measured here, or by default."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime import planner as planner_module
from serving.engine.runtime.plan import (
    MIN_ROUNDS,
    ROUNDS,
    SECONDS,
    Allowance,
    Figures,
    FiguresFile,
    Origin,
    Plan,
    Rounds,
    cache_folder,
    candidates,
    measure,
)
from serving.engine.runtime.planner import Planner, Settled, Trial
from serving.pipelines.loading import ModelParts
from tests.serving.engine.toy import toy_bundle, toy_graphs
from tests.tiny import tiny_bundle

ONE, TWO = Plan(1, 2), Plan(2, 1)
STEADY = {TWO: Rounds((1000.0,) * 8, (0.006,) * 8), ONE: Rounds((1500.0,) * 8, (0.004,) * 8)}
SERVED = Allowance(2, serves_http=True, measures=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("transformer", tmp_path_factory.mktemp("bundle"), Precision.INT8)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


def settle(folder: Path, allowance: Allowance) -> Settled:
    parts = ModelParts.open(folder)
    return Planner(parts.bundle, EngineConfig(slots=4), parts.engine).settle(allowance)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figures]]:
    """Set what measuring is to find; each is used once."""
    found: list[Figures] = []
    monkeypatch.setattr(planner_module, "measure", lambda plans, open_trial: found.pop())
    yield found
    assert not found


def test_what_is_given_is_not_measured(folder: Path) -> None:
    settled = settle(folder, Allowance(8, engines=2, threads=1, measures=True))
    assert (settled.plan, settled.origin) == (Plan(2, 1), Origin.GIVEN)


def test_one_cpu_leaves_nothing_to_measure(folder: Path) -> None:
    settled = settle(folder, Allowance(1, serves_http=True, measures=True))
    assert (settled.plan, settled.origin) == (Plan(1, 1), Origin.ONLY)


def test_what_was_measured_is_kept(folder: Path, measured: list[Figures], cache: Path) -> None:
    measured.append(STEADY)
    assert settle(folder, SERVED).origin is Origin.MEASURED
    again = settle(folder, SERVED)
    assert (again.plan, again.origin) == (ONE, Origin.KEPT)
    offline = settle(folder, Allowance(2))
    assert (offline.plan, offline.origin) == (ONE, Origin.KEPT)
    assert len([*cache.iterdir()]) == 1


def test_what_is_not_clear_is_measured_again(folder: Path, measured: list[Figures]) -> None:
    wins = tuple(1000.0 + 400 * (i % 2) for i in range(8))
    unclear = {**STEADY, ONE: Rounds(wins, (0.004,) * 8)}
    measured += [STEADY, unclear]
    first = settle(folder, SERVED)
    assert (first.plan, first.origin) == (TWO, Origin.UNCLEAR)
    assert settle(folder, SERVED).plan == ONE


def test_other_bundles_and_other_cpus_have_figures_of_their_own(
    folder: Path, tmp_path: Path
) -> None:
    other = tiny_bundle("bahdanau", tmp_path, Precision.INT8)
    FiguresFile(open_bundle(folder), 2).write(STEADY)
    assert FiguresFile(open_bundle(folder), 2).read() == STEADY
    assert FiguresFile(open_bundle(folder), 4).read() == {}
    assert FiguresFile(open_bundle(other), 2).read() == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"plan": {}}]', "null"])
def test_a_broken_file_is_as_none(text: str, folder: Path, cache: Path) -> None:
    file = FiguresFile(open_bundle(folder), 2)
    file.write(STEADY)
    [path] = cache.iterdir()
    path.write_text(text)
    assert file.read() == {}


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path, cache: Path) -> None:
    cache.parent.parent.mkdir(parents=True)
    cache.parent.write_text("a file where the folder should be")
    FiguresFile(open_bundle(folder), 2).write(STEADY)
    assert FiguresFile(open_bundle(folder), 2).read() == {}


def test_the_same_figures_may_mean_another_plan_beside_http(
    folder: Path, measured: list[Figures]
) -> None:
    measured.append({**STEADY, ONE: Rounds((1100.0,) * 8, (0.004,) * 8)})
    assert settle(folder, SERVED).plan == TWO
    assert settle(folder, Allowance(2)).plan == ONE


def test_without_time_to_measure_it_is_the_default(folder: Path) -> None:
    settled = settle(folder, Allowance(2))
    assert (settled.plan, settled.origin) == (TWO, Origin.DEFAULT)


def test_a_large_model_is_not_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "MAX_MEASURED_BYTES", 1)
    settled = settle(folder, SERVED)
    assert (settled.plan, settled.origin) == (TWO, Origin.DEFAULT)


@pytest.mark.parametrize("family", ["transformer", "bahdanau", "llama", "recurrent-lm"])
def test_any_model_can_be_measured(family: str, tmp_path: Path) -> None:
    """With real graphs; of what it finds only that it is something."""
    path = tiny_bundle(family, tmp_path, Precision.INT8)
    assert settle(path, SERVED).plan.num_threads <= 2


def test_a_trial_is_of_all_engines_and_a_failure_is_told() -> None:
    def engines(**script: object) -> list[Engine]:
        return [Engine(toy_bundle(), EngineConfig(4, 1), toy_graphs()) for _ in range(2)]

    trial = Trial(toy_bundle().manifest, engines(), 4)
    assert trial.lone_step(0.0) > 0
    assert trial.tokens_per_second(0.01) > 0
    broken = engines()
    broken[1].step = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        Trial(toy_bundle().manifest, broken, 4).tokens_per_second(0.0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowModel:
    """Takes its time by a clock of its own."""

    def __init__(self, clock: Clock, loading: float, step: float) -> None:
        self.clock, self.step = clock, step
        clock.now += loading

    def lone_step(self, seconds: float) -> float:
        self.clock.now += max(seconds, self.step)
        return self.step

    def tokens_per_second(self, seconds: float) -> float:
        self.clock.now += max(seconds, self.step)
        return 1 / self.step


@pytest.mark.parametrize(
    ("cpus", "loading", "step", "num_plans", "are_enough"),
    [
        (2, 0.2, 0.02, 2, True),
        (64, 0.01, 0.01, 4, True),
        (64, 0.6, 0.01, 2, True),
        (2, 0.1, 0.2, 2, False),
        (2, 0.1, 0.95, 0, False),
        (2, 5.0, 0.5, 0, False),
    ],
)
def test_measuring_ends_in_time_whatever_a_model_takes(
    cpus: int, loading: float, step: float, num_plans: int, are_enough: bool
) -> None:
    clock = Clock()
    figures = measure(candidates(cpus), lambda plan: SlowModel(clock, loading, step), clock)
    assert len(figures) == num_plans
    assert all(rounds.are_enough == are_enough for rounds in figures.values())
    assert all(len(rounds.step_seconds) <= ROUNDS for rounds in figures.values())
    unavoidable = loading + 2 * 3 * step
    assert clock.now <= SECONDS + unavoidable
    assert MIN_ROUNDS < ROUNDS


def test_the_log_says_the_plan_in_one_line(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    settled = settle(folder, Allowance(2, engines=2, threads=1))
    assert str(settled) == "2 engines, 1 thread each (given)"

"""Runs that end early: by a time limit, by a signal, by a kill in the middle of a file."""

import json
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from models.checkpoint import load_checkpoint
from models.cli import train
from models.training import state, trainer
from models.training.config import read_config
from models.training.trainer import Trainer
from tests.grid import full
from tests.models.training.toy_run import write_config, write_data


@pytest.fixture(autouse=True)
def harmless_signals() -> Iterator[None]:
    """Have what nobody catches fail the test and not all tests."""

    def refuse(number: int, frame: Any) -> None:
        raise AssertionError(f"nobody caught {signal.Signals(number).name}")

    before = {number: signal.signal(number, refuse) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_data(tmp_path)
    return tmp_path


def call(folder: Path, name: str, *options: str, steps: int = 18, validations: int = 3) -> Result:
    config = write_config(folder, steps=steps, validations=validations)
    arguments = [str(config), "--data", str(folder), "-o", str(folder / name), *options]
    return CliRunner().invoke(train, arguments)


def rows(folder: Path) -> list[dict[str, Any]]:
    """All that a run logs but its times."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) | {"minutes": None} for line in lines]


def during(patch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[Trainer], None]):
    """Do it whenever the owner's function is called."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any) -> Any:
        act(*arguments[:1])
        return original(*arguments)

    patch.setattr(owner, name, wrapped)


@pytest.mark.parametrize("number", [signal.SIGTERM, *full([signal.SIGINT])])
def test_a_signal_stops_after_the_step_and_loses_nothing(
    folder: Path, number: signal.Signals
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        during(
            patch,
            Trainer,
            "_learn",
            lambda it: signal.raise_signal(number) if it.progress.step == 8 else None,
        )
        result = call(folder, "stopped")
    assert result.exit_code == 128 + number, result.output
    assert result.output.splitlines()[-1] == "stopped after step 9; the same command goes on"
    progress = json.loads((folder / "stopped/state/progress.json").read_text())
    assert (progress["step"], len(progress["losses"])) == (9, 3)
    resumed = call(folder, "stopped")
    assert "training goes on after step 9" in resumed.output
    assert call(folder, "whole").exit_code == 0
    assert rows(folder / "stopped") == rows(folder / "whole")


def test_a_signal_does_not_wait_for_validation(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        during(patch, trainer, "validate", lambda _: signal.raise_signal(signal.SIGTERM))
        result = call(folder, "run")
    assert result.exit_code == 128 + signal.SIGTERM, result.output
    assert not (folder / "run/metrics.jsonl").exists()
    assert "after step 6" in call(folder, "run").output
    assert [row["step"] for row in rows(folder / "run")] == [12, 18]


def test_a_second_signal_does_what_it_did_before(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        during(patch, Trainer, "_learn", lambda _: signal.raise_signal(signal.SIGTERM))
        during(patch, Trainer, "_save", lambda _: signal.raise_signal(signal.SIGTERM))
        result = call(folder, "run")
    assert "nobody caught SIGTERM" in str(result.exception)


def test_a_time_limit_ends_the_run_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which steps and validations take a second each."""
    monkeypatch.setitem(trainer.CLOCKS, "wall", map(float, count()).__next__)
    result = call(folder, "run", "--minutes", "0.1", steps=1_000_000, validations=1)
    assert result.exit_code == 0, result.output
    assert load_checkpoint(folder / "run/checkpoint").config.architecture == "bahdanau"
    assert [row["step"] for row in rows(folder / "run")] == [6]
    assert call(folder, "run", "--minutes", "0.2", steps=1_000_000, validations=1).exit_code == 0
    assert [row["step"] for row in rows(folder / "run")] == [6, 11]


def test_a_time_limit_is_of_the_day_and_the_schedule_ends_with_it(folder: Path) -> None:
    config = read_config(write_config(folder, steps=18))
    slow = config.run.model_copy(update={"clock": "processor", "max_minutes": 500.0})
    limited = config.model_copy(update={"run": slow}).with_minutes(2.0)
    assert (limited.run.clock, limited.run.max_minutes) == ("wall", 2.0)
    assert limited.run.max_steps == 18
    run = Trainer(limited, folder, folder / "run")
    run.progress.seconds = 90
    assert run.fraction_done == pytest.approx(0.75)


def test_a_run_that_is_over_learns_nothing_more(folder: Path) -> None:
    call(folder, "run")
    before = load_checkpoint(folder / "run/checkpoint").weights
    assert call(folder, "run").exit_code == 0
    after = load_checkpoint(folder / "run/checkpoint").weights
    assert [row["step"] for row in rows(folder / "run")] == [6, 12, 18]
    for name, weight in before.items():
        assert (weight == after[name]).all(), name


class Killed(BaseException):
    pass


@pytest.mark.parametrize("nth", [5, *full([0, 4, 6, 11])])
def test_a_kill_while_weights_are_written_loses_one_interval(folder: Path, nth: int) -> None:
    """The best, module, average, optimizer of three validations: half of the nth is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "save_file", killing(nth))
        with pytest.raises(Killed):
            Trainer(read_config(write_config(folder, 18)), folder, folder / "run").run()
    resumed = Trainer(read_config(write_config(folder, 18)), folder, folder / "run")
    assert resumed.progress.step == nth // 4 * 6
    resumed.run()
    assert [row["step"] for row in rows(folder / "run")] == [6, 12, 18]
    load_checkpoint(folder / "run/checkpoint")


def killing(nth: int) -> Callable[[dict[str, torch.Tensor], Path], None]:
    original, calls = state.save_file, iter(range(1000))

    def save(tensors: dict[str, torch.Tensor], path: Path) -> None:
        original(tensors, path)
        if next(calls) == nth:
            path.write_bytes(path.read_bytes()[:100])
            raise Killed

    return save

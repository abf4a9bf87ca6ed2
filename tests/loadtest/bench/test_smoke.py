"""`make bench-smoke`: losses that stay are found, others are forgiven."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadtest.bench import smoke
from loadtest.bench.compare import processor
from serving.bundle.manifest import Precision
from tests.tiny import tiny_bundle

KIND = processor()


def measured(*tries: list[float]) -> Callable[[], list[float]]:
    return iter(tries).__next__


def test_a_loss_is_measured_again_until_it_is_none() -> None:
    found = smoke.outcome("x", measured([0.7, 0.75, 0.9], [0.9, 0.85, 1.0]), 1.0)
    assert (found.value, found.num_tries, found.is_lost) == (pytest.approx(0.875), 2, False)


def test_a_loss_that_stays_is_one_though_a_repetition_was_better() -> None:
    found = smoke.outcome("x", measured([0.7], [0.75], [0.9]), 1.0)
    assert (found.value, found.is_lost) == (0.75, True)
    assert found.line == "LOST x: 0.75 (baseline 1.00, 3 tries)"


def test_without_a_baseline_nothing_is_lost() -> None:
    assert not smoke.outcome("x", measured([0.1]), None).is_lost


def test_what_becomes_slower_by_a_third_is_found() -> None:
    """Real work on both sides, in processor time, whatever else the machine does."""

    def seconds(amount: int) -> float:
        started = smoke.OPTIONS.clock()
        sum(range(amount))
        return smoke.OPTIONS.clock() - started

    def ratios(amount: int) -> list[float]:
        return [seconds(300_000) / seconds(amount) for _ in range(15)]

    assert not smoke.outcome("x", lambda: ratios(300_000), 1.0).is_lost
    assert smoke.outcome("x", lambda: ratios(420_000), 1.0).is_lost


@pytest.fixture
def bundles(tmp_path: Path) -> list[str]:
    kinds = (Precision.INT8, Precision.FP32)
    return [str(tiny_bundle("transformer", tmp_path, kind)) for kind in kinds]


def test_all_ratios_are_measured_and_stored(
    bundles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke, "OPTIONS", replace(smoke.OPTIONS, num_repetitions=1))
    baseline = tmp_path / "baseline.json"
    baseline.write_text('{"another": {"x": 1.0}}')
    arguments = [*bundles, "--baseline", str(baseline)]
    result = CliRunner().invoke(smoke.main, [*arguments, "--write"])
    assert result.exit_code == 0, result.output
    stored = json.loads(baseline.read_text())
    assert stored["another"] == {"x": 1.0}
    assert min(stored[KIND].values()) > 0
    for kind, known in json.loads(smoke.BASELINE.read_text()).items():
        assert known.keys() == stored[KIND].keys(), kind


def test_a_lost_ratio_fails_by_name(
    bundles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratios = {"fine": lambda: [1.0], "slow": lambda: [1.0]}
    monkeypatch.setattr(smoke, "ratios", lambda int8, fp32: ratios)
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps({KIND: {"fine": 1.2, "slow": 1.3}}))
    result = CliRunner().invoke(smoke.main, [*bundles, "--baseline", str(baseline)])
    assert result.exit_code == 1
    assert "slower than baseline.json by more than 20 %: ['slow']" in result.output


def test_a_processor_without_a_baseline_is_told_and_passes(
    bundles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke, "ratios", lambda int8, fp32: {"x": lambda: [0.1]})
    baseline = tmp_path / "baseline.json"
    baseline.write_text('{"another": {"x": 1.0}}')
    result = CliRunner().invoke(smoke.main, [*bundles, "--baseline", str(baseline)])
    assert result.exit_code == 0, result.output
    assert f"no baseline for {KIND}" in result.output

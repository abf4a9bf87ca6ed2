"""`attendant loadtest-report` as a user runs it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loadtest.cli import loadtest_report
from tests.loadtest.recordings import recording_of, request_of, simulated, written


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(loadtest_report, [str(each) for each in arguments])


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        written(simulated(rate=rate, seconds=8, seed=rate), tmp_path / f"at-{rate}.jsonl")
        for rate in (5, 10, 20)
    ]


def test_one_recording_is_reported_everywhere(runs: list[Path], tmp_path: Path) -> None:
    page, markdown = tmp_path / "run.html", tmp_path / "run.md"
    result = invoke(runs[2], "--html", page, "--markdown", markdown)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Load test of http://127.0.0.1:1/\npoisson, 20 requests/s")
    assert page.read_text().startswith("<!doctype html>")
    assert markdown.read_text().startswith("# Load test of")


def test_more_recordings_are_loads(runs: list[Path]) -> None:
    assert json.loads(invoke(*runs, "--json").stdout)["kind"] == "loads"
    found = json.loads(invoke(*runs[:2], "--json").stdout)
    assert [run["load"] for run in found["runs"]] == [5.0, 10.0]


def test_an_objective_given_later_finds_the_capacity(runs: list[Path]) -> None:
    result = invoke(*runs, "--objective", "p95_ttft_ms=1000", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["capacity"] == {"carried": 20.0, "not_carried": None}
    assert invoke(*runs, "--objective", "p95_ttft_ms=1").exit_code == 1


def test_the_exit_status_tells_of_assertions(runs: list[Path]) -> None:
    kept, missed = ("--assert", "p50_ttft_ms<1000"), ("--assert", "p50_ttft_ms<1")
    assert invoke(runs[0], *kept).exit_code == 0
    result = invoke(runs[0], *kept, *missed)
    assert result.exit_code == 1
    assert "p50_ttft_ms < 1 " in result.stdout
    unknown = invoke(runs[0], "--assert", "p95_tfft_ms<200")
    assert unknown.exit_code == 2
    assert "did you mean p95_ttft_ms?" in unknown.stderr


def test_goodput_can_be_asked_for_later(runs: list[Path]) -> None:
    found = json.loads(invoke(runs[0], "--goodput", "e2e_ms=10000", "--json").stdout)
    assert found["goodput_limits_ms"] == {"e2e": 10000.0}
    assert found["figures"]["goodput_share"]["value"] == 1.0


def test_answers_without_a_limited_latency_are_not_good(tmp_path: Path) -> None:
    """An answer that was not streamed has no time to a first token; a stream of one text has no
    gaps to keep a limit by.
    """
    whole = written(recording_of([request_of(1, 2)]), tmp_path / "whole.jsonl")
    found = json.loads(invoke(whole, "--goodput", "ttft_ms=5000", "--json").stdout)
    assert found["figures"]["goodput_share"]["value"] == 0.0
    streamed = written(recording_of([request_of(1, 2, tokens=(1.5,))]), tmp_path / "one.jsonl")
    found = json.loads(invoke(streamed, "--goodput", "ttft_ms=600,itl_ms=1", "--json").stdout)
    assert found["figures"]["goodput_share"]["value"] == 1.0


def test_what_cannot_be_reported_is_told(runs: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    lines = runs[0].read_text().splitlines(keepends=True)
    broken.write_text("".join([lines[0], "{}\n", *lines[1:]]))
    users = written(recording_of([request_of(1, 2)]), tmp_path / "users.jsonl")
    for arguments, says in [
        ((broken,), f"{broken}, line 2"),
        ((tmp_path / "none.jsonl",), "does not exist"),
        ((*runs, users), "some recordings are of users and some of rates"),
        ((*runs, "--assert", "errors<1"), "--assert judges one run"),
        ((runs[0], "--html", tmp_path / "no" / "page.html"), "nothing can be written into"),
        ((runs[0], "--html", runs[0]), "is for something else already"),
        ((runs[0], "--html", tmp_path / "a", "--markdown", tmp_path / "a"), "is for something"),
    ]:
        result = invoke(*arguments)
        assert result.exit_code != 0
        assert says in result.stderr
        assert "Traceback" not in result.output


def test_a_run_that_was_killed_is_reported(tmp_path: Path) -> None:
    run = simulated(rate=10, seconds=8)
    path = written(recording_of(run.requests, is_complete=False), tmp_path / "killed.jsonl")
    result = invoke(path)
    assert result.exit_code == 0
    assert "cut off" in result.stdout

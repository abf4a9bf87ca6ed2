"""Tests what `attendant loadtest` makes of its runs: reports, verdicts and searches, over real
HTTP.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loadtest.cli import loadtest
from loadtest.generator.mock_server import Behaviour, mock_server

SHORT = ("--protocol", "completions", "--model", "m", "--warm-up", "0.1", "--duration", "1")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(loadtest, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with mock_server(Behaviour(first_token_seconds=0.05, token_seconds=0.005)) as url:
        yield url


def test_a_run_is_judged_and_reported(url: str, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    judged = ("--assert", "errors<1", "--assert", "p50_ttft_ms<1", "--objective", "e2e_p50_ms=9e3")
    result = invoke(url, *SHORT, "--users", 4, *judged, "--html", page, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [verdict["is_kept"] for verdict in found["assertions"]] == [True, False]
    assert found["run"]["objective"] == {"e2e_p50_ms": 9000.0}
    assert [verdict["is_kept"] for verdict in found["objective"]] == [True, True]
    assert found["figures"]["ttft_p50_ms"]["value"] > 50
    assert "Load test of" in page.read_text()


def test_a_sweep_is_one_report_and_a_recording_for_each_load(url: str, tmp_path: Path) -> None:
    result = invoke(url, *SHORT, "--sweep", "1,2", "--json", "--record", tmp_path / "sweep.jsonl")
    found = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert [run["load"] for run in found["runs"]] == [1.0, 2.0]
    assert {path.name for path in tmp_path.iterdir()} == {"sweep-1.jsonl", "sweep-2.jsonl"}
    assert "2 users: " in result.stderr


def test_no_load_that_is_carried_is_an_exit_status(url: str, tmp_path: Path) -> None:
    search = ("--sweep", "2", "--objective", "ttft_p50_ms=1", "--record", tmp_path / "run.jsonl")
    result = invoke(url, *SHORT, *search)
    assert result.exit_code == 1
    assert "highest load within the objective  none" in result.stdout

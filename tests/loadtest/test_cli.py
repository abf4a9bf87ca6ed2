"""`attendant loadtest` as a user runs it, against a server of its own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loadtest.cli import loadtest, temporary_recording
from loadtest.generator.mock_server import Behaviour, mock_server
from loadtest.records import counted, read_recording

SHORT = ("--users", "4", "--warm-up", "0.1", "--duration", "0.5")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(loadtest, arguments)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with mock_server(Behaviour(first_token_seconds=0.02, token_seconds=0.005)) as url:
        yield url


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_a_run_ends_in_a_recording_and_a_report(url: str, record: Path) -> None:
    result = invoke(url, *SHORT, "--record", str(record))
    assert result.exit_code == 0, result.output
    assert str(record) in result.stderr
    recording = read_recording(record)
    assert recording.is_complete
    assert recording.is_closed_loop
    assert {request.user for request in recording.requests} == {0, 1, 2, 3}
    assert {request.outcome for request in recording.requests} == {"ok"}


def test_a_run_ends_with_enough_requests(url: str, record: Path) -> None:
    options = ("--warm-up", "0.2", "--duration", "60", "--requests", "12", "--record", str(record))
    assert invoke(url, "--users", "4", *options).exit_code == 0
    recording = read_recording(record)
    assert 12 <= len(counted(recording)) < 60
    assert recording.seconds < 30
    assert invoke(url, "--rate", "40", *options).exit_code == 0
    recording = read_recording(record)
    assert len(counted(recording)) == 12
    assert recording.seconds < 1.5


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://host/",
        "http://",
        "http://host:99999",
        "http://h/?q=1",
        "http://[::1",
    ],
)
def test_a_bad_url_is_refused_in_one_line(url: str) -> None:
    result = invoke(url)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"Error: Invalid value for 'URL': {url!r} is not an address such as http://127.0.0.1:8000"
    )


def test_a_server_that_is_not_there_is_told_in_one_line(record: Path) -> None:
    result = invoke("http://127.0.0.1:1", "--record", str(record))
    assert result.exit_code == 2
    start = "Error: http://127.0.0.1:1/ gave no answer to translate to start with: connection: "
    assert result.stderr.startswith(start)
    assert len(result.stderr.splitlines()) == 1
    assert not record.exists()


def test_a_server_that_answers_nonsense_is_told() -> None:
    with mock_server(Behaviour(nonsense=1.0)) as url:
        result = invoke(url, *SHORT)
    assert result.exit_code == 2
    assert "to start with: bad answer: not JSON: '<html>42</html>'" in result.stderr


def test_a_server_that_turns_to_nonsense_fails_a_run_whose_recording_is_kept(
    record: Path,
) -> None:
    with mock_server(Behaviour(nonsense=1.0, good_requests=1)) as url:
        result = invoke(url, *SHORT, "--record", str(record))
    assert result.exit_code == 2
    assert "no request was answered as it should be" in result.stderr
    assert {request.outcome for request in read_recording(record).requests} == {"bad answer"}


def test_a_trace_with_a_broken_line_is_told(url: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"time": 0.0}) + '\n{"time": "soon"}\n')
    result = invoke(url, "--trace", str(trace))
    assert result.exit_code == 2
    assert f"{trace}, line 2: time: Input should be a valid number" in result.stderr


def test_a_refusal_at_the_start_carries_the_servers_words() -> None:
    with mock_server(Behaviour(refuse=1.0)) as url:
        result = invoke(url)
    assert result.exit_code == 2
    assert 'refused: {"error": "too many requests"}' in result.stderr


def test_a_recording_with_texts_is_replayed(url: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    options = ("--warm-up", "0", "--duration", "0.6")
    result = invoke(url, "--rate", "30", *options, "--record-texts", "--record", str(first))
    assert result.exit_code == 0, result.output
    again = ("--trace", str(first), "--warm-up", "0", "--record-texts", "--record", str(second))
    result = invoke(url, *again)
    assert result.exit_code == 0, result.output
    before = sorted(read_recording(first).requests, key=lambda request: request.intended)
    after = sorted(read_recording(second).requests, key=lambda request: request.intended)
    assert [request.text for request in after] == [request.text for request in before]
    start = before[0].intended
    assert [request.intended for request in after] == pytest.approx(
        [request.intended - start for request in before], abs=2e-6
    )


@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
@pytest.mark.parametrize("option", ["--rate", "--duration", "--warm-up", "--timeout"])
def test_numbers_that_are_none_are_refused_before_the_run(option: str, value: str) -> None:
    result = invoke("http://127.0.0.1:9", option, value)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.output
    assert "is not a finite number" in result.output


def test_runs_begun_in_the_same_second_have_recordings_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loadtest.cli.strftime", lambda _: "attendant-loadtest-now")
    paths = set()
    for process in (1, 2):
        monkeypatch.setattr("os.getpid", lambda process=process: process)
        paths.add(temporary_recording())
    assert len(paths) == 2

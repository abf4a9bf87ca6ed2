"""`attendant loadtest` as a user runs it, against a server of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loadtest.cli import loadtest, temporary_recording
from loadtest.plan import ArrivalPlan, plan_of
from loadtest.records import read_recording
from tests.loadtest.mock_server import Behaviour, mock_server

SHORT = ("--users", "4", "--warm-up", "0.1", "--duration", "0.5")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(loadtest, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with mock_server(Behaviour(first_token_seconds=0.05, token_seconds=0.005)) as url:
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
    assert {request.outcome for request in recording.requests} == {"ok"}


def test_a_run_ends_with_enough_requests(url: str, record: Path) -> None:
    options = ("--warm-up", "0.2", "--duration", "60", "--requests", "12", "--record", str(record))
    assert invoke(url, "--users", "4", *options).exit_code == 0
    recording = read_recording(record)
    assert 12 <= len(recording.requests_in_window()) < 60
    assert recording.seconds < 30
    assert invoke(url, "--rate", "40", *options).exit_code == 0
    recording = read_recording(record)
    assert len(recording.requests_in_window()) == 12
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


def test_a_refusal_at_the_start_carries_the_servers_words() -> None:
    with mock_server(Behaviour(refuse=1.0)) as url:
        result = invoke(url)
    assert result.exit_code == 2
    assert 'refused: {"error": "too many requests"}' in result.stderr


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


COMPLETIONS = ("--protocol", "completions", "--model", "m", "--warm-up", "0.1", "--duration", "1")


def test_a_run_is_judged_and_reported(url: str, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    judged = ("--assert", "errors<1", "--assert", "p50_ttft_ms<1", "--objective", "p50_e2e_ms=9e3")
    result = invoke(url, *COMPLETIONS, "--users", 4, *judged, "--html", page, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [verdict["is_kept"] for verdict in found["assertions"]] == [True, False]
    assert found["run"]["objective"] == {"p50_e2e_ms": 9000.0}
    assert [verdict["is_kept"] for verdict in found["objective"]] == [True, True]
    assert found["figures"]["p50_ttft_ms"]["value"] > 50
    assert "Load test of" in page.read_text()


def test_a_sweep_is_one_report_and_a_recording_for_each_load(url: str, tmp_path: Path) -> None:
    result = invoke(
        url, *COMPLETIONS, "--sweep", "1,2", "--json", "--record", tmp_path / "sweep.jsonl"
    )
    found = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert [run["load"] for run in found["runs"]] == [1.0, 2.0]
    assert {path.name for path in tmp_path.iterdir()} == {"sweep-1.jsonl", "sweep-2.jsonl"}
    assert "2 users: " in result.stderr


def test_no_load_that_is_carried_is_an_exit_status(url: str, tmp_path: Path) -> None:
    search = ("--sweep", "2", "--objective", "p50_ttft_ms=1", "--record", tmp_path / "run.jsonl")
    result = invoke(url, *COMPLETIONS, *search)
    assert result.exit_code == 1
    assert "highest load within the objective  none" in result.stdout


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ArrivalPlan(kind="closed", users=32)),
        (("--users", 5), ArrivalPlan(kind="closed", users=5)),
        (("--rate", 2), ArrivalPlan(kind="poisson", rate=2.0)),
        (("--rate", 2, "--arrivals", "constant"), ArrivalPlan(kind="constant", rate=2.0)),
    ],
)
def test_arrivals_follow_from_what_is_given(options: tuple[Any, ...], expected: Any) -> None:
    words = ["http://127.0.0.1:1", *map(str, options)]
    parameters = loadtest.make_context("loadtest", words).params
    assert plan_of("http://127.0.0.1:1/", parameters).arrivals == expected


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--arrivals", "poisson"), "poisson arrivals need --rate"),
        (("--rate", 1, "--users", 3), "--users does nothing for poisson arrivals"),
        (("--arrivals", "closed", "--rate", 1), "--rate does nothing for closed arrivals"),
        (("--protocol", "chat"), "chat needs --model"),
        (("--input", "none.txt"), "cannot be read as text"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: tuple[Any, ...], reason: str) -> None:
    result = invoke("http://127.0.0.1:1", *options)
    assert result.exit_code == 2
    assert reason in result.stderr


@pytest.mark.parametrize(
    ("protocol", "scheme"), [("translate", "Bearer"), ("deepl", "DeepL-Auth-Key")]
)
def test_a_key_and_headers_are_sent_and_not_recorded(
    protocol: str, scheme: str, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADTEST_API_KEY", "secret-key")
    words = ["--protocol", protocol, "--header", "X-Team: research", "--header", "Empty:"]
    parameters = loadtest.make_context("loadtest", ["http://127.0.0.1:1", *words]).params
    plan = plan_of("http://127.0.0.1:1/", parameters)

    expected = {"X-Team": "research", "Empty": "", "Authorization": f"{scheme} secret-key"}
    assert plan.headers == expected
    assert "secret" not in repr(plan)


def test_a_server_that_wants_a_key_gets_it(record: Path) -> None:
    with mock_server(Behaviour(key="Bearer secret-key")) as url:
        refused = invoke(url, *SHORT)
        result = invoke(url, *SHORT, "--api-key", "secret-key", "--record", str(record))
    assert refused.exit_code == 2
    assert result.exit_code == 0, result.stderr
    assert "secret-key" not in record.read_text()


@pytest.mark.parametrize("header", ["X-Team", ": a", "X Team: a", "X-Team: a\nX-Other: b"])
def test_a_header_is_a_name_a_colon_and_a_value(header: str) -> None:
    result = invoke("http://127.0.0.1:9", "--header", header)
    assert result.exit_code == 2
    assert "is not a header such as X-Team:research" in result.stderr

"""`attendant loadtest` as a user runs it, against a server of its own."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from loadtest.cli import SAMPLE, loadtest
from loadtest.run import read_texts
from tests.loadtest.fake_server import TOKENS_PER_TRANSLATION, FakeServer, serving

SHORT = ("--users", "4", "--warm-up", "0.1", "--duration", "0.5")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(loadtest, arguments)


def test_translate_reports_the_figures_of_its_timeline(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    fake = FakeServer()
    with serving(fake) as url:
        result = invoke(url, *SHORT, "--json", "--timeline", str(file))
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    marks = {r["record"]: r["time"] for r in records if "time" in r}
    exchanges = [r for r in records if r["record"] == "exchange"]
    counted = [e for e in exchanges if marks["opened"] < e["end"] <= marks["closed"]]
    latencies = [e["end"] - e["start"] for e in counted]
    assert fake.most_in_flight == 4
    assert report["errors"] == {}
    assert report["answers"] == len(counted) < len(exchanges)
    assert report["seconds"] == pytest.approx(marks["closed"] - marks["opened"])
    assert report["sentences_per_second"] == pytest.approx(len(counted) / report["seconds"])
    assert report["tokens"] == pytest.approx(len(counted) * TOKENS_PER_TRANSLATION, abs=4 * 7)
    for percent in (50, 90, 95, 99):
        expected = np.percentile(latencies, percent)
        assert report["latency_seconds"][f"p{percent}"] == pytest.approx(expected)


def test_completions_report_tokens_of_usage_and_first_tokens() -> None:
    with serving(FakeServer()) as url:
        options = ("--endpoint", "completions", "--model", "shout", "--max-tokens", "5")
        result = invoke(url, *SHORT, *options)
    assert result.exit_code == 0, result.output
    lines = {line.split("  ")[0]: line for line in result.stdout.splitlines()}
    assert "usage of the answers" in lines["tokens"]
    assert lines["errors"].endswith("none")
    first_token, latency = (float(lines[name].split()[-5]) for name in ("first token", "latency"))
    assert 20 <= first_token < latency


def test_errors_are_counted_by_kind(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("hello\nbusy\nhtml\n\n")
    with serving(FakeServer()) as url:
        result = invoke(url, *SHORT, "--input", str(texts), "--json")
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["errors"]) == {"HTTP 429", "bad answer"}


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


def test_a_server_that_is_not_there_is_told_in_one_line() -> None:
    result = invoke("http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: http://127.0.0.1:1/ gave no answer to start with: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_refusal_at_the_start_carries_the_servers_words(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("busy\n")
    with serving(FakeServer()) as url:
        result = invoke(url, "--input", str(texts))
    assert result.exit_code == 1
    assert "too many requests" in result.stderr


def test_completions_need_a_model() -> None:
    result = invoke("http://127.0.0.1:1", "--endpoint", "completions")
    assert result.exit_code == 2
    assert "completions need --model" in result.stderr


def test_an_input_without_text_is_refused(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n \n")
    result = invoke("http://127.0.0.1:1", "--input", str(texts))
    assert result.exit_code == 1
    assert "holds no text" in result.stderr


def test_the_sample_is_varied() -> None:
    lengths = {len(text.split()) for text in read_texts(SAMPLE)}
    assert min(lengths) <= 6
    assert max(lengths) >= 13

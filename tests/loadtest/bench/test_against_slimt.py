"""The comparison with slimt, whose place a slow script takes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadtest.bench import against_slimt, texts
from serving.bundle.manifest import Precision
from serving.commands.translate import translate
from tests.tiny import tiny_bundle

SLOW = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"seconds": 1000.0, "cpu_seconds": 500.0}), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("transformer-ssru", tmp_path_factory.mktemp("bundles"), Precision.INT8)


def test_it_reports_words_a_second_of_each_engine(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, sentences = tmp_path / "worker.py", tmp_path / "sentences.txt"
    worker.write_text(SLOW)
    sentences.write_text("a dog\na cat sleeps\n" * 20)
    monkeypatch.setattr(against_slimt, "WORKER", worker)
    arguments = [str(folder), str(tmp_path), str(sentences), "--turns", "2"]
    result = CliRunner().invoke(against_slimt.main, arguments)
    assert result.exit_code == 0, result.output
    first, ours, theirs, one_by_one = result.output.splitlines()
    assert first.startswith("100 words, 2 turns, 1 core(s)")
    assert ours.startswith("attendant")
    assert ours.count("(1.00 x)") == 2
    assert theirs.split()[:6] == ["slimt", "words/s", "per", "core", "0", "0"]
    assert one_by_one.startswith("slimt, one by one")


def test_an_engine_that_fails_ends_the_comparison(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, sentences = tmp_path / "worker.py", tmp_path / "sentences.txt"
    worker.write_text("raise SystemExit('slimt is not installed')")
    sentences.write_text("a dog\n")
    monkeypatch.setattr(against_slimt, "WORKER", worker)
    result = CliRunner().invoke(against_slimt.main, [str(folder), str(tmp_path), str(sentences)])
    assert result.exit_code != 0
    assert "slimt has failed" in result.output


def test_a_turn_translates_as_the_command_does(folder: Path, tmp_path: Path) -> None:
    sentences, output = tmp_path / "sentences.txt", tmp_path / "out.txt"
    sentences.write_text("a dog. It barks!\na cat sleeps\na dog\n")
    arguments = [str(folder), str(sentences), "--slots", "4", "--output", str(output)]
    turns = CliRunner().invoke(texts.main, arguments, input="\n\n")
    assert turns.exit_code == 0, turns.output
    assert [set(json.loads(line)) for line in turns.output.splitlines()] == [
        {"seconds", "cpu_seconds"}
    ] * 2
    command = CliRunner().invoke(translate, ["--model", str(folder), str(sentences)])
    assert command.exit_code == 0, command.output
    assert output.read_text() == command.stdout

"""`attendant bench-compare`, with scripts in the places of other engines."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loadtest.bench import compare_engines
from loadtest.bench.compare import bench_compare
from loadtest.bench.compare_engines import PEERS_FOLDER, own_orders
from loadtest.bench.compare_inputs import read_inputs
from loadtest.bench.compare_workloads import WORKLOADS
from serving.bundle.manifest import Precision
from tests.tiny import tiny_bundle

# Translates every source into itself, and takes its time where it is badly set.
ECHO = """
import time

class CTranslate2:
    version = "1.2"

    def __init__(self, settings):
        self.settings, self.ids = settings, settings["inputs"]["ids"]

    def prepare(self, order):
        is_best = order["max_batch_size"] != 0
        def run(first_token):
            time.sleep(0.01 if is_best else 0.2)
            return self.ids[slice(*order["inputs"])]
        return run

    def outputs(self, raw):
        print("what a library prints is no answer")
        return raw
"""
MISSING = "class Transformers:\n    def __init__(self, settings):\n        import no_such_engine\n"
FAILING = "class CTranslate2:\n    def __init__(self, settings):\n        raise SystemExit(7)\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("transformer", tmp_path_factory.mktemp("bundles"), Precision.FP32)


@pytest.fixture
def peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of workers that runs in the place of the real one."""
    folder = tmp_path / "peers"
    folder.mkdir()
    shutil.copy(PEERS_FOLDER / "process.py", folder)
    monkeypatch.setattr(compare_engines, "PEERS_FOLDER", folder)
    return folder


def race(bundle: Path, folder: Path, *options: str) -> Result:
    arguments = [str(bundle), "-o", str(folder / "out"), "--rounds", "2", "--max-new-tokens", "4"]
    return CliRunner().invoke(bench_compare, [*arguments, *options])


def rows(folder: Path) -> dict[tuple[str, str], Any]:
    report = json.loads((folder / "out" / "race.json").read_text())
    return {(row["workload"], row["peer"]): row for row in report["rows"]}


def test_engines_take_turns_each_at_its_best(bundle: Path, peers: Path, tmp_path: Path) -> None:
    (peers / "workers.py").write_text(ECHO + MISSING)
    options = [f"--peer=ctranslate2={peers}", f"--peer=transformers={peers}"]
    result = race(bundle, tmp_path, *options, "--workloads", "batch-8,file-beam-4")
    assert result.exit_code == 0, result.output
    found, num_sentences = rows(tmp_path), len(read_inputs(bundle, None, None, 1).even)
    assert list(found) == [("batch-8", "ctranslate2"), ("file-beam-4", "ctranslate2")]
    for row in found.values():
        assert len(row["ours"]["rates"]) == len(row["theirs"]["rates"]) == 2
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert "max_batch_size 0" not in row["theirs"]["setting"]
        assert row["ours"]["setting"].startswith("engines ")
        assert row["agreement"] == {"same": 0, "total": num_sentences, "bleu_difference": None}
    assert found["file-beam-4", "ctranslate2"]["aim"] == 1.3
    assert "transformers is skipped: No module named 'no_such_engine'" in result.output
    table = (tmp_path / "out" / "race.md").read_text()
    assert "| batch 8 | tokens/s |" in table
    assert "Skipped: transformers" in table


@pytest.mark.parametrize(
    ("workload", "num_cores", "plans"),
    [
        ("batch-1", 2, [(1, 2)]),
        ("batch-8", 2, [(2, 1), (1, 2)]),
        ("file", 1, [(1, 1)]),
        ("batch-1", 1, [(1, 1)]),
        ("batch-8", 64, [(8, 8)]),
    ],
)
def test_ours_is_searched_among_the_plans_of_a_server(
    workload: str, num_cores: int, plans: list[tuple[int, int]]
) -> None:
    orders = own_orders(WORKLOADS[workload], {}, num_cores)
    assert [(order["engines"], order["threads"]) for order in orders] == plans


def test_a_quick_race_takes_less_of_everything(bundle: Path, peers: Path, tmp_path: Path) -> None:
    (peers / "workers.py").write_text(ECHO)
    sentences = tmp_path / "in.txt"
    sentences.write_text("a dog runs\n" * 220)
    options = ["--quick", "--rounds", "9", "--input", str(sentences), "--workloads", "file"]
    result = race(bundle, tmp_path, f"--peer=ctranslate2={peers}", *options)
    assert result.exit_code == 0, result.output
    row = rows(tmp_path)["file", "ctranslate2"]
    assert len(row["ours"]["rates"]) == 2
    assert row["agreement"]["total"] == 200
    assert "round 2 of 2" in result.output


SLOW = """
import time, sys, os

class Transformers:
    version = "1.2"

    def __init__(self, settings):
        open(os.environ["PID_FILE"], "w").write(str(os.getpid()))

    def prepare(self, order):
        return lambda first_token: time.sleep(600)
"""
RACE = "from loadtest.bench import compare, compare_engines; import pathlib, sys\n"
RACE += "compare_engines.PEERS_FOLDER = pathlib.Path(sys.argv.pop(1)); compare.bench_compare()"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_everyone_at_once(
    number: signal.Signals, bundle: Path, peers: Path, tmp_path: Path
) -> None:
    (peers / "workers.py").write_text(SLOW)
    pid_file = tmp_path / "pid_file"
    options = ["-o", str(tmp_path / "out"), f"--peer=transformers={peers}", "--workloads=batch-1"]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            RACE,
            str(peers),
            str(bundle),
            "-o",
            str(tmp_path / "out"),
            *options,
        ],
        env=os.environ | {"PID_FILE": str(pid_file), "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while not (pid_file.exists() and pid_file.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    worker = int(pid_file.read_text())
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert not Path(f"/proc/{worker}").exists()
    assert (tmp_path / "out" / "race.md").exists()


def test_an_engine_that_fails_ends_the_race(bundle: Path, peers: Path, tmp_path: Path) -> None:
    (peers / "workers.py").write_text(FAILING)
    result = race(bundle, tmp_path, f"--peer=ctranslate2={peers}", "--workloads", "batch-1")
    assert result.exit_code != 0
    assert "ctranslate2 has failed with code 7" in result.output


def test_outputs_are_compared_with_references(bundle: Path, peers: Path, tmp_path: Path) -> None:
    (peers / "workers.py").write_text(ECHO)
    sentences, references = tmp_path / "in.txt", tmp_path / "out.txt"
    sentences.write_text("One dog. Two dogs.\nthe cat sleeps on a mat\n\na dog runs to the cat\n")
    references.write_text("left out\nthe cat sleeps on a mat\n\na dog runs to the cat\n")
    options = [f"--peer=ctranslate2={peers}", "--workloads", "file", "--input", str(sentences)]
    result = race(bundle, tmp_path, *options, "--references", str(references))
    assert result.exit_code == 0, result.output
    agreement = rows(tmp_path)["file", "ctranslate2"]["agreement"]
    assert agreement["total"] == 2
    assert agreement["bleu_difference"] < -50

    references.write_text("one line\n")
    result = race(bundle, tmp_path, *options, "--references", str(references))
    assert "has 1 lines, the sentences 4" in result.output


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--peer", "marian=/"], "NAME one of ctranslate2"),
        (["--peer", "slimt=/none"], "/none is not there"),
        (["--workloads", "batch-3"], "no workload is called batch-3"),
        (["--workloads", "streams-1"], "not of this model's task"),
        (["--rates", "10,5"], "not a list of rising rates"),
        (["--cores", "100000"], "there are only"),
    ],
)
def test_what_makes_no_sense_is_refused(
    wrong: list[str], says: str, bundle: Path, tmp_path: Path
) -> None:
    result = race(bundle, tmp_path, *wrong)
    assert result.exit_code == 2
    assert says in result.output

"""Tests that a run with ``--unit`` names the test that does what unit tests must not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit import ROOT, is_unit_test


def test_the_list_takes_folders_in_and_files_out() -> None:
    folder = ROOT / "tests" / "serving" / "text"
    assert is_unit_test(folder / "markup" / "test_html.py")
    assert not is_unit_test(folder / "test_chat_of_transformers.py")
    assert not is_unit_test(ROOT / "tests" / "export" / "test_cost.py")


def test_the_list_names_what_exists() -> None:
    lines = (ROOT / "tests" / "unit.txt").read_text().splitlines()
    paths = [line.removeprefix("!") for line in lines if not line.startswith("#")]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("import onnx\ndef test_it(): pass", "test_it.py imports onnx"),
        ("def test_it():\n import onnx", "a unit test imports onnx"),
        (
            "import onnxruntime\ndef test_it(): onnxruntime.InferenceSession('a')",
            "opens an ONNX Runtime session",
        ),
        (
            "import subprocess\ndef test_it(): subprocess.run(['true', 'serve'])",
            "a unit test starts a server",
        ),
        ("def test_it(server_url): pass", "test_it.py::test_it uses a server"),
    ],
)
def test_what_others_must_not_wait_for_fails(tmp_path: Path, lines: str, message: str) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "tests" / "unit.py", tests)
    (tests / "unit.txt").write_text("tests/test_it.py\n")
    (tests / "test_it.py").write_text(lines)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tests / "conftest.py").write_text(
        "import pytest\npytest_plugins = ('tests.unit',)\n@pytest.fixture\ndef server_url(): pass\n"
    )
    options = ["--unit", "--import-mode=importlib", "-pno:schemathesis", "-pno:langsmith_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert message in done.stdout + done.stderr

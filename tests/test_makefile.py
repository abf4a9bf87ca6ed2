"""Tests that what `make` would run are commands that `attendant` knows, on every shipped
checkpoint.
"""

import os
import shlex
import subprocess
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from tests.docs.commands import parsed

ROOT = Path(__file__).parent.parent


STUB = """#!/bin/sh
echo "$@" >>calls
case "$1 $PULL_STATUS" in
    "export "*) mkdir -p "$4" && touch "$4/bundle.json" ;;
    "pull 0") mkdir -p "$4" && touch "$4/bundle.json" ;;
    "pull "*) echo "a long story" >&2; exit "$PULL_STATUS" ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout that is installed, with an `attendant` that only writes down its calls."""
    for name in ("Makefile", "pyproject.toml", "export", "models", "serving"):
        (tmp_path / name).symlink_to(ROOT / name)
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for path in (binaries / "pip", tmp_path / ".venv" / "installed-cpu"):
        path.touch()
    (binaries / "attendant").write_text(STUB)
    (binaries / "attendant").chmod(0o755)
    return tmp_path


def serve(clone: Path, pull_status: int) -> tuple[list[str], str]:
    """The names of the commands that `make serve` called, the last one whole; what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "serve", "DEVICE=cpu"],
        cwd=clone,
        env=environment | {"PULL_STATUS": str(pull_status)},
        capture_output=True,
        text=True,
        check=True,
    )
    calls = (clone / "calls").read_text().splitlines()
    (clone / "calls").unlink()
    return [*(call.partition(" ")[0] for call in calls[:-1]), calls[-1]], done.stdout + done.stderr


def commands(*arguments: str) -> list[list[str]]:
    """The calls of attendant in a dry run with nothing up to date."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.replace("\\\n", "").splitlines()
    return [call_in(shlex.split(line)) for line in lines if "/attendant " in line]


def call_in(words: list[str]) -> list[str]:
    """Return the call of attendant in a line of shell, without what is around it."""
    words = list(dropwhile(lambda word: not word.endswith("/attendant"), words))
    return list(takewhile(lambda word: not word.startswith(">"), words))


@pytest.mark.parametrize(
    ("device", "provider", "precision"), [("cpu", "cpu", "int8"), ("gpu", "cuda", "fp16")]
)
def test_serve_exports_and_serves_what_is_shipped(
    device: str, provider: str, precision: str
) -> None:
    shipped = [path.parent for path in ROOT.glob("models/checkpoints/*/config.json")]
    *exports, pull, serve = commands("serve", f"DEVICE={device}", "PORT=1234")
    assert {parsed(words).params["precision"] for words in exports} == {precision}
    assert len(exports) == len(shipped)
    bundles = {f"build/bundles/{path.name}-{precision}" for path in shipped}
    assert bundles <= {*map(str, parsed(serve).params["bundles"])}
    pulled = parsed(pull).params
    assert (pulled["name"], pulled["precision"]) == ("bergamot-en-pt", precision)
    assert str(pulled["output"]) == f"build/bundles/bergamot-en-pt-{precision}"
    assert parsed(serve).params["device"] == provider
    assert parsed(serve).params["port"] == 1234


def test_bench_smoke_exports_both_precisions_of_one_model() -> None:
    exports = [parsed(words).params for words in commands("bench-smoke")]
    assert {each["precision"] for each in exports} == {"int8", "fp32"}
    assert {str(each["source"]) for each in exports} == {"models/checkpoints/transformer-en-fr"}


def test_a_fetched_model_is_served_last_and_fetched_once(clone: Path) -> None:
    *first, call = serve(clone, pull_status=0)[0]
    again = serve(clone, pull_status=1)[0]

    assert first.count("pull") == 1 and again == [call]
    _, *bundles = call.partition(" --device")[0].split()
    assert "build/bundles/transformer-en-fr-int8" in bundles
    assert bundles[-1] == "build/bundles/bergamot-en-pt-int8"


def test_what_cannot_be_fetched_costs_one_line_and_is_tried_again(clone: Path) -> None:
    (*first, call), said = serve(clone, pull_status=2)
    again, _ = serve(clone, pull_status=0)

    assert "bergamot" not in call and first.count("pull") == 1
    [line] = [line for line in said.splitlines() if "without bergamot" in line]
    assert "make serve" in line and "a long story" not in said
    assert again[0] == "pull" and again[-1].count("bergamot-en-pt-int8") == 1

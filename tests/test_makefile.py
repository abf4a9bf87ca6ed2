"""Tests that what `make` would run are commands that `attendant` knows, on every shipped
checkpoint.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.docs.commands import parsed

ROOT = Path(__file__).parent.parent


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
    lines = [shlex.split(line) for line in done.stdout.splitlines() if "/attendant " in line]
    return [line for line in lines if line[0].endswith("/attendant")]


@pytest.mark.parametrize(
    ("device", "provider", "precision"), [("cpu", "cpu", "int8"), ("gpu", "cuda", "fp16")]
)
def test_serve_exports_and_serves_what_is_shipped(
    device: str, provider: str, precision: str
) -> None:
    shipped = [path.parent for path in ROOT.glob("models/checkpoints/*/config.json")]
    *exports, serve = commands("serve", f"DEVICE={device}", "PORT=1234")
    assert {parsed(words).params["precision"] for words in exports} == {precision}
    assert len(exports) == len(shipped)
    bundles = [f"build/bundles/{path.name}-{precision}" for path in shipped]
    assert sorted(map(str, parsed(serve).params["bundles"])) == sorted(bundles)
    assert "transformer-en-fr" in serve[2]
    assert parsed(serve).params["device"] == provider
    assert parsed(serve).params["port"] == 1234


def test_bench_smoke_exports_both_precisions_of_one_model() -> None:
    exports = [parsed(words).params for words in commands("bench-smoke")]
    assert {each["precision"] for each in exports} == {"int8", "fp32"}
    assert {str(each["source"]) for each in exports} == {"models/checkpoints/transformer-en-fr"}

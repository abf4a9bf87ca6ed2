"""`attendant pull` gives bundles, and says what is wrong."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner, Result

from export import downloads
from export.downloads import CatalogueEntry, PullError, Wheel, WheelFolder
from export.pull import pull
from export.readers import reading
from models.checkpoint import load_checkpoint
from serving.bundle.opening import open_bundle
from tests.tiny import tiny_checkpoint

ROOT = Path(__file__).parent.parent.parent
TOY_WHEEL = WheelFolder(Wheel("toy-models", "1.0", "0" * 64), "toy")
TOY = CatalogueEntry("A toy", (TOY_WHEEL,), {}, "CC0-1.0")


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that is in the catalogue, and on the hub, without a package or a hub."""
    folder = tmp_path / "cache"
    tiny_checkpoint("transformer", folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(downloads, "CATALOGUE", {"toy": TOY})
    monkeypatch.setattr(downloads, "fetch_from_catalogue", lambda name, cache: folder)
    monkeypatch.setattr(downloads, "fetch_from_hub", lambda name, file: folder)
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(pull, arguments)


def test_a_model_of_the_catalogue_becomes_a_bundle_that_says_where_it_is_from() -> None:
    result = run("toy", "--no-verify")
    assert result.exit_code == 0, result.output
    bundle = open_bundle(Path("toy"))
    assert (bundle.manifest.name, bundle.manifest.precision) == ("toy", "int8")
    card = Path("toy/README.md").read_text()
    assert "A toy, from the Python package toy-models 1.0, checked by SHA-256." in card
    assert "CC0-1.0" in card
    assert bundle.manifest.origin == "toy of toy-models 1.0"


@pytest.mark.parametrize(("bits", "precision"), [(4, "int4"), (8, "int8"), (None, "int8")])
def test_quantised_models_keep_their_weights(
    bits: Literal[4, 8] | None, precision: str, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = replace(load_checkpoint(toy), bits=bits)
    monkeypatch.setattr(reading, "read_model", lambda source: checkpoint)
    assert run("toy", "--no-verify").exit_code == 0
    assert open_bundle(Path("toy")).manifest.precision == precision


def test_a_model_of_the_hub_in_a_folder_and_a_precision() -> None:
    result = run("owner/model", "-o", "elsewhere", "--precision", "fp32", "--no-verify")
    assert result.exit_code == 0, result.output
    bundle = open_bundle(Path("elsewhere"))
    assert (bundle.manifest.name, bundle.manifest.precision) == ("model", "fp32")


def test_a_name_of_ones_own() -> None:
    result = run("owner/model", "--name", "mine", "--no-verify")
    assert result.exit_code == 0, result.output
    assert open_bundle(Path("model")).manifest.name == "mine"


def test_the_catalogue_is_shown() -> None:
    first, *rest = run("--list").output.splitlines()
    assert [first, rest[0]] == ["toy: A toy (package toy-models 1.0)", "  Licence: CC0-1.0"]
    assert rest[1].startswith("firefox/SOURCE-TARGET: Firefox Translations")


def test_unknown_names() -> None:
    result = run("toys")
    assert result.exit_code == 2
    assert "toys is not in the catalogue: did you mean toy?" in result.output
    assert run().exit_code == 2


def test_what_cannot_be_fetched_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, cache: Path) -> Path:
        raise PullError(["no network", "no disk"])

    monkeypatch.setattr(downloads, "fetch_from_catalogue", fail)
    result = run("toy")
    assert result.exit_code == 2
    assert result.output == "toy cannot be pulled:\n  no network\n  no disk\n"
    assert not Path("toy").exists()


def test_what_cannot_be_read_leaves_no_bundle(toy: Path) -> None:
    (toy / "model.safetensors").write_bytes(b"torn")
    result = run("toy", "--no-verify")
    assert result.exit_code == 2
    assert "cannot be exported" in result.output
    assert not Path("toy").exists()


def test_a_pull_that_is_ended_stops_its_download_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    hanging = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    (tmp_path / "pip.py").write_text(hanging)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "serving.cli", "pull", "bergamot-en-pt", "-o", "bundle"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False)

    assert done.returncode == 128 + signal.SIGTERM and time.monotonic() - began < 30
    assert [path.name for path in (tmp_path / "attendant").iterdir()] == ["bergamot-en-pt"]
    assert not (tmp_path / "bundle").exists()

"""`attendant list`, bundles that are served by name, and paths that are no bundles."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.cli import main
from serving.commands.bundles import get_bundle
from tests.export.remote_settings import RemoteSettings, serve_remote_settings
from tests.served import ROOT, url_of
from tests.tiny import tiny_bundle, tiny_checkpoint

OWN_BUNDLES = "data/attendant/bundles"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, with the user's folders in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RemoteSettings]:
    with serve_remote_settings() as settings:
        monkeypatch.setenv("ATTENDANT_FIREFOX_SERVER", f"{settings.url}/v1")
        settings.add_model(tmp_path / "origin")
        yield settings


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_bundles_of_the_source_tree_and_of_the_user_are_listed(home: Path) -> None:
    tiny_bundle("transformer", home / "build/bundles", Precision.INT8, domain="captions")
    tiny_bundle("llama", home / OWN_BUNDLES, Precision.FP32)
    title, first, second = run("list").stdout.splitlines()
    assert title.split() == ["NAME", "TASK", "LANGUAGES", "PRECISION", "SIZE", "FROM", "FOLDER"]
    assert first.split()[1:6] == ["translate", "en", "to", "fr", "int8"]
    assert first.split()[-1].startswith("build/bundles/transformer")
    assert second.split()[1:4] == ["generate", "en", "fp32"]

    translator, _ = json.loads(run("list", "--json").stdout)
    folder = Path(translator["folder"])
    assert translator["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    assert (translator["domain"], translator["target_languages"]) == ("captions", ["fr"])
    assert translator["origin"] == open_bundle(folder).manifest.origin is not None


def test_folders_that_are_named_are_listed_alone(home: Path) -> None:
    bundle = tiny_bundle("transformer", home / "elsewhere", Precision.INT8)
    tiny_bundle("llama", home / "build/bundles", Precision.INT8)
    for folder in (bundle, bundle.parent):
        [described] = json.loads(run("list", str(folder), "--json").stdout)
        assert described["folder"] == str(bundle)
    assert run("list", str(home / "none")).exit_code == 2


def test_without_bundles_the_catalogue_is_named() -> None:
    result = run("list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no bundle in build/bundles or " in result.stderr
    assert "`attendant pull --list`" in result.stderr
    assert run("list", "--json").stdout == "[]\n"


def test_a_damaged_bundle_is_named_and_the_others_are_listed(home: Path) -> None:
    tiny_bundle("transformer", home / "build/bundles", Precision.INT8)
    (home / "build/bundles/damaged").mkdir()
    (home / "build/bundles/damaged/bundle.json").write_text("{")
    result = run("list")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 2
    assert result.stderr.startswith("build/bundles/damaged: bundle.json: ")


def test_a_name_is_served_from_the_bundles_there_are(home: Path) -> None:
    bundle = tiny_bundle("transformer", home / OWN_BUNDLES, Precision.INT8)
    for_cuda = tiny_bundle("transformer", home / "build/bundles/cuda", Precision.FP16)
    name = open_bundle(bundle).manifest.name
    assert get_bundle(Path(name), None) == bundle
    shutil.move(for_cuda, home / "build/bundles/for-cuda")
    assert get_bundle(Path(name), None) == bundle
    assert get_bundle(Path(name), "cuda") == Path("build/bundles/for-cuda")
    assert get_bundle(Path("firefox/somebody's own"), None) == Path("firefox/somebody's own")


def test_a_name_that_is_not_there_is_pulled_once(home: Path, settings: RemoteSettings) -> None:
    bundle = get_bundle(Path("firefox/en-pt"), None)
    assert bundle == home / OWN_BUNDLES / "firefox-en-pt"
    assert open_bundle(bundle).manifest.name == "firefox-en-pt"
    settings.requests.clear()
    assert get_bundle(Path("firefox/en-pt"), "cpu") == bundle
    assert get_bundle(Path("firefox-en-pt"), None) == bundle
    assert settings.requests == []

    (home / "build/bundles").mkdir(parents=True)
    for_cuda = get_bundle(Path("firefox/en-pt"), "cuda")
    assert for_cuda == Path("build/bundles/firefox-en-pt-fp16")
    assert open_bundle(for_cuda).manifest.precision == Precision.FP16


def test_what_cannot_be_pulled_is_not_served(home: Path, settings: RemoteSettings) -> None:
    for name, reason in (
        ("firefox/en-xx", "there is no en-xx: there is en-pt"),
        ("bergamot-en-pl", "did you mean bergamot-en-pt?"),
    ):
        command = [sys.executable, "-m", "serving.cli", "serve", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and reason in done.stderr and "Traceback" not in done.stderr
    assert not [*(home / OWN_BUNDLES).iterdir()]


def test_a_server_pulls_what_it_is_asked_to_serve(home: Path, settings: RemoteSettings) -> None:
    command = [sys.executable, "-m", "serving.cli", "serve", "firefox/en-pt", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = url_of(process)
            [model] = httpx.get(f"{url}/v1/models").json()["data"]
            assert (model["id"], model["domain"]) == ("firefox-en-pt", None)
            body = {"q": "a dog", "source": "en", "target": "pt"}
            assert httpx.post(f"{url}/translate", json=body, timeout=60).status_code == 200
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("mine", "attendant export mine -o build/bundles/mine --precision int8"),
        ("mine/config.json", "attendant export mine -o build/bundles/mine --precision int8"),
        ("mine/model.safetensors", "attendant export mine -o build/bundles/mine --precision int8"),
        ("a b.gguf", "attendant export 'a b.gguf' -o 'build/bundles/a b'"),
        ("x.argosmodel", "attendant export x.argosmodel -o build/bundles/x --precision int8"),
        ("holder", "a folder of bundles and none itself: name those in it, holder/transformer"),
        ("notes.txt", "a file, and bundles are folders: `attendant export` writes them"),
    ],
)
def test_models_that_are_not_exported_name_the_command(
    home: Path, path: str, expected: str
) -> None:
    tiny_checkpoint("transformer", home / "mine")
    bundle = tiny_bundle("transformer", home / "elsewhere", Precision.INT8)
    shutil.copytree(bundle, home / "holder/transformer")
    for name in ("a b.gguf", "x.argosmodel", "notes.txt"):
        (home / name).touch()
    for command in (["serve", path], ["translate", "--model", path]):
        result = run(*command)
        assert result.exit_code == 2 and expected in result.stderr, result.stderr


def test_the_command_that_is_named_makes_a_bundle(home: Path) -> None:
    tiny_checkpoint("transformer", home / "mine")
    command = run("serve", "mine").stderr.split("`")[1]
    words = [sys.executable, "-m", "serving.cli", *shlex.split(command)[1:], "--no-verify"]
    subprocess.run(words, check=True, env=os.environ)
    assert open_bundle(home / "build/bundles/mine").manifest.origin == "mine"

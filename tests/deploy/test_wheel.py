"""The wheel: its hooks, and in `make test-all` one that is built, checked and used."""

import importlib
import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from packaging.utils import parse_wheel_filename

from serving.kernels import build
from serving.version import VERSION
from tests.served import ROOT

URL = "https://forge.example/us/attendant"


class Hook:
    """hatchling's base class of hooks."""

    def __init__(self) -> None:
        self.root, self.config = str(ROOT), {"url": URL}
        self.app = SimpleNamespace(display_warning=self.warn)
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture(autouse=True)
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for hatchling, which is part of a build alone."""
    for name, base in (
        ("hatchling.builders.hooks.plugin.interface", "BuildHookInterface"),
        ("hatchling.metadata.plugin.interface", "MetadataHookInterface"),
    ):
        interface = ModuleType(name)
        setattr(interface, base, Hook)
        monkeypatch.setitem(sys.modules, name, interface)
    monkeypatch.delenv("ATTENDANT_BUILD_KERNELS", raising=False)


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delitem(sys.modules, "deploy.wheel.build_hook", raising=False)
    module = importlib.import_module("deploy.wheel.build_hook")
    monkeypatch.setattr(module, "TERMINAL", tmp_path / "terminal")
    return module.BuildHook()


def test_a_compiler_that_does_not_work_is_replaced_and_at_last_a_warning_is_shown(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "compilers", lambda: [["false"]])
    monkeypatch.setattr(build, "build", partial(build.build, tmp_path / "made.so"))
    assert [name.partition(">")[0] for name in hook.dependencies()] == ["ziglang"]
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("editable", data)
    assert data == {"force_include": {}}
    [warning] = hook.warnings
    assert "without native kernels: false failed" in warning and "2 to 3 times slower" in warning
    assert warning in (tmp_path / "terminal").read_text()


def test_a_compiler_that_works_needs_no_other(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "build", lambda: build.LIBRARY)
    assert hook.dependencies() == []
    monkeypatch.setenv("ATTENDANT_BUILD_KERNELS", "all")
    assert [name.partition(">")[0] for name in hook.dependencies()] == ["ziglang"]


@pytest.mark.parametrize(
    ("choice", "architecture"), [("", build.ARCHITECTURE), ("aarch64", "aarch64")]
)
def test_a_wheel_has_all_kernels_of_an_architecture_and_the_tag_of_the_oldest_c_library(
    hook: Any, choice: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[list[str]] = []

    def write(target: Path, instruction_sets: list[str], is_portable: bool) -> Path:
        built.append(instruction_sets)
        target.write_bytes(b"\0GLIBC_2.17\0GLIBC_2.2.5\0memcpy\0")
        return target

    monkeypatch.setattr(build, "build", write)
    monkeypatch.setenv("ATTENDANT_BUILD_KERNELS", choice)
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", data)
    places = {place: Path(path).read_bytes() for path, place in data["force_include"].items()}
    assert built == [build.instruction_sets_of(architecture)]
    assert data["tag"] == f"py3-none-manylinux_2_17_{architecture}"
    assert data["pure_python"] is False
    assert places["attendant-server.pth"] == b"attendant-server\n"
    assert "attendant-server/serving/kernels/attendant_kernels.so" in places
    hook.finalize("standard", data, "")
    assert not any(Path(path).exists() for path in data["force_include"])


def test_a_wheel_without_kernels_runs_anywhere_and_says_why_it_has_none(
    hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "portable_compilers", lambda architecture: [["false"]])
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", data)
    reasons = [Path(path).read_text() for path in data["force_include"] if "problem" in path]
    assert "tag" not in data and len(hook.warnings) == 1
    hook.finalize("standard", data, "")
    assert len(reasons) == 1 and "false failed" in reasons[0]


def relative_targets(markdown: str) -> list[str]:
    """Return the targets of links and pictures that lead nowhere on another site."""
    tokens = [child for token in MarkdownIt().parse(markdown) for child in token.children or []]
    targets = [str(token.attrGet("href") or token.attrGet("src") or "#") for token in tokens]
    html = [token.content for token in tokens if token.type == "html_inline"]
    html += [token.content for token in MarkdownIt().parse(markdown) if token.type == "html_block"]
    targets += re.findall(r'(?:href|src)="([^"]*)"', "".join(html))
    return [target for target in targets if not re.match(r"https?:|#|mailto:", target)]


def test_links_and_pictures_of_the_readme_are_addresses_on_an_index() -> None:
    module = importlib.import_module("deploy.wheel.metadata_hook")
    metadata: dict[str, Any] = {"version": "3.2.1"}
    module.MetadataHook().update(metadata)
    text = metadata["readme"]["text"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert relative_targets(readme) and relative_targets(text) == []
    assert f"{URL}/raw/v3.2.1/docs/page.png" in text
    assert f"{URL}/blob/v3.2.1/docs/models.md" in text
    files = re.findall(rf"{URL}/(?:raw|blob)/v3.2.1/([^)#\"\s]+)", text)
    assert [path for path in files if not (ROOT / path).exists()] == []
    paths = re.findall(rf"{URL}/(?:tree|blob)/v3.2.1/(\S+)", "\n".join(metadata["urls"].values()))
    assert len(paths) == 2 and [path for path in paths if not (ROOT / path).exists()] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `make wheel` makes."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder)]
    environment = {**os.environ, "ATTENDANT_BUILD_KERNELS": "all"}
    built = subprocess.run([*command, str(ROOT)], env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    [path] = folder.iterdir()
    return path


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_wheel_is_for_old_systems_and_an_index_takes_it(wheel: Path) -> None:
    name, version, _, tags = parse_wheel_filename(wheel.name)
    platforms = {tag.platform for tag in tags}
    assert (name, str(version)) == ("attendant-server", VERSION)
    assert platforms == {f"manylinux_2_17_{build.ARCHITECTURE}"}
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True
    )
    assert f'"manylinux_2_17_{build.ARCHITECTURE}"' in " ".join(shown.stdout.split())
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel)],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_wheel_has_every_file_of_the_packages_and_no_common_name_at_its_top(
    wheel: Path,
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = message_from_bytes(
            archive.read(f"attendant_server-{VERSION}.dist-info/METADATA")
        )
    top = {name.split("/")[0] for name in names}
    assert top == {
        "attendant-server",
        "attendant-server.pth",
        f"attendant_server-{VERSION}.dist-info",
    }
    tracked = subprocess.run(
        ["git", "ls-files", "serving", "export", "models", "loadtest", "deploy"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    expected = {path for path in tracked if not path.startswith("models/checkpoints/")}
    packaged = {name.removeprefix("attendant-server/") for name in names}
    assert expected - packaged == set()
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_wheel_runs_outside_of_the_source_tree_without_a_compiler(
    wheel: Path, tmp_path: Path
) -> None:
    """Dependencies are those of this environment, whose own .pth files are not read."""
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    variables = {"PATH": "", "PYTHONPATH": str(packages), "HOME": str(tmp_path)}
    attendant = environment / "bin" / "attendant"

    def run(*arguments: str) -> str:
        command = [str(attendant), *arguments]
        result = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    version = run("--version")
    assert f"attendant {VERSION}\n" in version
    assert f"native kernels: {build.processor_instruction_sets()[0]}\n" in version
    checkpoint = ROOT / "models" / "checkpoints" / "bahdanau-en-fr"
    run("export", str(checkpoint), "-o", str(tmp_path / "en-fr"), "--precision", "int8")
    (tmp_path / "text.txt").write_text("A dog runs.\n")
    arguments = ["--model", str(tmp_path / "en-fr"), "-o", str(tmp_path / "translated.txt")]
    run("translate", str(tmp_path / "text.txt"), *arguments)
    assert "chien" in (tmp_path / "translated.txt").read_text()

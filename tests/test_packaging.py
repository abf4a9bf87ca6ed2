"""The distribution: its name wherever one is advised to install it, its version, its wheel."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from serving.kernels.library import native_kernels, onnxruntime_version
from serving.version import VERSION

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME = PROJECT["name"]
# What an installer is told to install, up to the end of the command or of its line.
INSTALLATIONS = re.compile(
    r"\b(?:pip3?|pipx|uv|uvx)\b[^\n`|;&#]*?\b(?:install|add|run|download|wheel|tool)\b([^\n`|;&#]*)"
)


def foreign_names(text: str) -> list[str]:
    """Return the names beginning with `attendant`, but not ours, that the text says to install:
    in a command, or with extras.
    """
    joined = re.sub(r"(?<=install)\n\s+", " ", text)  # a help text breaks its lines anywhere
    commands = "\n".join(INSTALLATIONS.findall(joined))
    names = re.findall(r"(?<![\w/.:-])(attendant[\w.-]*)(?![\w/:-])", commands)
    names += re.findall(r"(?<![\w-])(attendant[\w.-]*)\[[a-z]", joined)
    return [name for name in names if name != NAME]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pip install 'attendant[mcp]'", ["attendant", "attendant"]),
        ("pip install attendant", ["attendant"]),
        ("pipx install attendant-serving", ["attendant-serving"]),
        ("uv tool install --python 3.12 attendant", ["attendant"]),
        ("this needs matplotlib: pip install\n    'attendant[plots]'", ["attendant"] * 2),
        ("install attendant[gpu] anew", ["attendant"]),
        (f"pip install '{NAME}[cpu]'", []),
        ("pip install '.[cpu]'; attendant serve", []),
        ("pipx install . | attendant translate", []),
    ],
)
def test_a_name_of_somebody_else_is_noticed(text: str, names: list[str]) -> None:
    assert foreign_names(text) == names


def test_nothing_advises_to_install_a_package_of_somebody_else() -> None:
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    advice = {}
    for file in files:
        if (ROOT / file).is_file() and file != Path(__file__).relative_to(ROOT).as_posix():
            data = (ROOT / file).read_bytes()
            names = foreign_names(data.decode("utf-8", "replace")) if b"attendant" in data else []
            if names:
                advice[file] = names
    assert not advice


def test_the_changelog_has_this_release_below_what_is_unreleased() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert headings[:2] == ["Unreleased", VERSION]


def run_attendant(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder whose modules are found before all others."""
    code = "from serving.cli import main; main(prog_name='attendant')"
    variables = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def test_a_package_of_others_with_a_name_of_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("")
    result = run_attendant(tmp_path, "train", "recipe.toml")
    assert result.returncode != 0
    assert f"`import models` finds {tmp_path / 'models.py'}, not {ROOT / 'models'}" in result.stderr
    assert "virtual environment of its own" in result.stderr and "Traceback" not in result.stderr
    assert run_attendant(tmp_path, "--help").returncode == 0


def test_the_version_says_which_kernels_and_which_onnx_runtime_run(tmp_path: Path) -> None:
    result = run_attendant(tmp_path, "--version")
    assert result.stdout.splitlines() == [
        f"attendant {VERSION}",
        f"native kernels: {native_kernels().description}",
        f"ONNX Runtime: {onnxruntime_version()}",
    ]

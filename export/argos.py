"""`attendant import-argos`: bundles of Argos Translate's and LibreTranslate's translators."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from export.cli import handle_termination, list_problems
from models.command_errors import fail

if TYPE_CHECKING:
    from export.readers.ctranslate2.argos import Package

PACKAGES_VARIABLES = ("ARGOS_PACKAGES_DIR", "ARGOS_TRANSLATE_PACKAGE_DIR")  # of Argos Translate
PREFIX = "argos-"  # of the names of bundles


@dataclass(frozen=True)
class InstalledPackage:
    """A package on this machine. name: of its bundle."""

    path: Path
    package: "Package"
    name: str

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", self.package.version)))

    @property
    def changed(self) -> float:
        """Return when its model was last changed, in seconds since 1970."""
        from export.readers.ctranslate2.files import MODEL_FILE, MODEL_FOLDER

        path = self.path / MODEL_FOLDER / MODEL_FILE if self.path.is_dir() else self.path
        return path.stat().st_mtime


@click.command("import-argos")
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("build/bundles"),
    show_default=True,
    help="Folder for the bundles: one for each pair of languages, argos-en-fr.",
)
def import_argos(folders: tuple[Path, ...], output: Path) -> None:
    """Turn the translators of Argos Translate or LibreTranslate into bundles that can be served.

    FOLDERS hold packages, as both programs install them, or are packages themselves: folders, or
    files that end with .argosmodel. Without any it is the folder of this user's packages:
    ~/.local/share/argos-translate/packages, or what ARGOS_PACKAGES_DIR says.

    Of several versions of a pair the newest is taken. Bundles that are newer than their package
    are left as they are, so that an import that was stopped goes on where it was. Packages that
    cannot be imported are listed at the end, and the status is then 2.

    \b
    Examples:
      attendant import-argos
      attendant import-argos /srv/libretranslate/packages -o build/bundles
      attendant import-argos translate-en_fr-1_9.argosmodel
    """
    from tqdm import tqdm

    from models.checkpoint import CheckpointError

    problems: dict[Path, Sequence[str]] = {}
    packages = _choose_newest(_find_packages(folders or (_find_default_folder(),), problems))
    if not packages and not problems:
        fail("there is no package of translations: nothing was imported")
    bundles: list[Path] = []
    with handle_termination(), tqdm(packages, unit="package", disable=None) as bar:
        for package in bar:
            bar.set_postfix_str(package.name)
            bundle = output / package.name
            try:
                if not _is_up_to_date(bundle, package):
                    _export_package(package, bundle)
                bundles.append(bundle)
            except CheckpointError as error:
                problems[package.path] = error.problems
            except OSError as error:
                problems[package.path] = [str(error)]
    for path, lines in problems.items():
        click.echo(f"{path} cannot be imported:", err=True)
        for line in list_problems([*lines]):
            click.echo(line, err=True)
    if bundles:
        click.echo(
            f"{len(bundles)} of {len(packages)} translators are in {output}. Serve them with"
        )
        click.echo(f"  attendant serve {_shorten_paths(bundles, output)}")
    if problems:
        raise SystemExit(2)


def _find_default_folder() -> Path:
    """Return the folder in which this user's packages are installed."""
    configured = next(filter(None, map(os.environ.get, PACKAGES_VARIABLES)), None)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    folder = Path(configured) if configured else Path(data) / "argos-translate" / "packages"
    if not folder.is_dir():
        fail(
            f"there is no folder {folder}: where are the packages?",
            "  attendant import-argos FOLDER",
        )
    return folder


def _find_packages(
    folders: Iterable[Path], problems: dict[Path, Sequence[str]]
) -> Iterator[InstalledPackage]:
    """Yield the translators among the packages; what cannot be read is a problem."""
    from export.readers.ctranslate2.argos import TRANSLATE, read_package
    from export.readers.ctranslate2.files import is_package
    from models.checkpoint import CheckpointError

    for folder in folders:
        if not folder.exists():
            problems[folder] = ["there is no such file or folder"]
            continue
        is_single = is_package(folder) or folder.is_file()
        paths = [folder] if is_single else sorted(filter(is_package, folder.iterdir()))
        for path in paths:
            try:
                package = read_package(path)
            except CheckpointError as error:
                problems[path] = error.problems
                continue
            if package.kind != TRANSLATE:  # of sentence boundaries, which are found without
                continue
            if package.problems:
                problems[path] = package.problems
                continue
            yield InstalledPackage(path, package, PREFIX + "-".join(package.languages))


def _choose_newest(packages: Iterable[InstalledPackage]) -> list[InstalledPackage]:
    """Return one package for each pair of languages."""
    newest: dict[str, InstalledPackage] = {}
    for package in packages:
        if package.name not in newest or newest[package.name].version < package.version:
            newest[package.name] = package
    return [newest[name] for name in sorted(newest)]


def _is_up_to_date(bundle: Path, package: InstalledPackage) -> bool:
    from serving.bundle.manifest import MANIFEST_FILE

    manifest = bundle / MANIFEST_FILE
    return manifest.is_file() and manifest.stat().st_mtime > package.changed


def _export_package(package: InstalledPackage, bundle: Path) -> None:
    """Raise CheckpointError, or OSError if the bundle cannot be written."""
    from export.bundling.writer import export_checkpoint
    from export.readers.reading import read_model
    from serving.bundle.manifest import Precision

    export_checkpoint(read_model(package.path), bundle, Precision.INT8, package.name)


def _shorten_paths(bundles: Sequence[Path], output: Path) -> str:
    """Return words of a command line for bundles: a pattern where it means the same."""
    pattern = f"{PREFIX}*"
    if len(bundles) > 1 and {*output.glob(pattern)} == {*bundles}:
        return str(output / pattern)
    return " ".join(map(str, bundles))

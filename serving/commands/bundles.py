"""`attendant list`: the bundles of this machine. A server gets bundles by their names, too."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serving.bundle.folders import bundle_folders, find_bundles

if TYPE_CHECKING:
    from serving.bundle.manifest import Manifest

# A name of the catalogue, firefox/SOURCE-TARGET or OWNER/MODEL.
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_MOST_LANGUAGES = 3  # in a line
_TITLES = ("NAME", "TASK", "LANGUAGES", "PRECISION", "SIZE", "FROM", "FOLDER")


@click.command("list")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--json", "wants_json", is_flag=True, help="Write a list of objects in JSON.")
def list_bundles(folders: tuple[Path, ...], wants_json: bool) -> None:
    """List bundles: their models' names, tasks and languages, their sizes, and where they are from.

    FOLDERS are bundles, or have bundles in them. Without FOLDERS those in build/bundles are listed,
    and those in ~/.local/share/attendant/bundles, where `attendant serve NAME` puts what it pulls.

    \b
    Examples:
      attendant list
      attendant list build/bundles --json
    """
    from serving.bundle.opening import open_manifest
    from serving.errors import BundleError

    searched = folders or bundle_folders()
    descriptions = []
    for path in find_bundles(searched):
        try:
            descriptions.append(_describe(path, open_manifest(path)))
        except BundleError as error:
            click.echo(f"{path}: {'; '.join(error.problems)}", err=True)
    if wants_json:
        click.echo(json.dumps(descriptions, indent=2, ensure_ascii=False))
    elif descriptions:
        _write_table([_TITLES, *map(_make_row, descriptions)])
    else:
        names = " or ".join(map(str, searched))
        message = f"there is no bundle in {names}: `attendant pull --list` shows models to fetch"
        click.echo(message, err=True)


def get_bundle(path: Path, device: str | None) -> Path:
    """Return the bundle that a path or a name means: a name's bundle is searched in the folders of
    `attendant list`, or else pulled. Ends the program with 2 if it cannot be.

    device: the one it is for; bundles for CUDA have other precisions.
    """
    if not _is_name(path):
        return path
    name, is_for_cuda = str(path), device == "cuda"
    short_name = name.replace("/", "-") if name.startswith("firefox/") else path.name
    bundle = _find_bundle(short_name, is_for_cuda)
    if bundle is None:
        bundle = _pull(name, short_name, is_for_cuda)
    else:
        click.echo(f"attendant: {name} is {bundle}", err=True)
    return bundle


def _is_name(path: Path) -> bool:
    is_in_folder = len(path.parts) > 1 and path.parent.exists()
    return not path.exists() and not is_in_folder and _NAME.fullmatch(str(path)) is not None


def _find_bundle(name: str, is_for_cuda: bool) -> Path | None:
    from serving.bundle.manifest import DEVICE_PRECISIONS
    from serving.bundle.opening import open_manifest
    from serving.errors import BundleError

    for bundle in find_bundles(bundle_folders()):
        try:
            manifest = open_manifest(bundle)
        except BundleError:
            continue
        fits = (manifest.precision in DEVICE_PRECISIONS) == is_for_cuda
        if fits and name.lower() in (manifest.name.lower(), bundle.name.lower()):
            return bundle
    return None


def _pull(name: str, short_name: str, is_for_cuda: bool) -> Path:
    """Run `attendant pull`, which ends with this program."""
    build, data = bundle_folders()
    folder = build if build.is_dir() else data
    output = folder / f"{short_name}{'-fp16' if is_for_cuda else ''}"
    message = f"there is no bundle {name} in {build} or {data}: pulling it"
    click.echo(f"attendant: {message} into {output}", err=True)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "serving.cli", "pull", name, "-o", str(output), "--no-verify"]
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    process = subprocess.Popen([*command, *(["--precision", "fp16"] if is_for_cuda else [])])
    try:
        status = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        signal.signal(signal.SIGTERM, before)
    if status != 0:
        sys.exit(2)
    return output


def _describe(path: Path, manifest: "Manifest") -> dict[str, Any]:
    return {
        "name": manifest.name,
        "task": manifest.serves,
        "source_languages": manifest.source_languages,
        "target_languages": manifest.target_languages,
        "domain": manifest.domain,
        "architecture": manifest.architecture,
        "precision": manifest.precision,
        "bytes": sum(file.stat().st_size for file in path.iterdir() if file.is_file()),
        "origin": manifest.origin,
        "folder": str(path),
    }


def _make_row(description: dict[str, Any]) -> tuple[str, ...]:
    sources, targets = description["source_languages"], description["target_languages"]
    languages = _shorten(sources)
    if tuple(sources) != tuple(targets):
        languages = f"{languages} to {_shorten(targets)}"
    size = f"{description['bytes'] / 1e6:,.0f} MB"
    origin = description["origin"] or "-"
    task, precision = str(description["task"]), str(description["precision"])
    return (
        description["name"],
        task,
        languages or "-",
        precision,
        size,
        origin,
        description["folder"],
    )


def _shorten(languages: tuple[str, ...]) -> str:
    if len(languages) > _MOST_LANGUAGES:
        return f"{len(languages)} languages"
    return ", ".join(languages)


def _write_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())

"""The files of a model: in a folder, or in a package of Argos Translate, a zip archive.

Nothing of an archive is unpacked onto disk: its files are looked up by their whole names and read
into memory.
"""

import errno
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from models.checkpoint import CheckpointError
from models.files import MOST_BYTES, open_archive, read_file
from models.safetensors import Array

MODEL_FILE = "model.bin"
METADATA_FILE = "metadata.json"  # of a package
MODEL_FOLDER = "model"  # in a package
PACKAGE_SUFFIX = ".argosmodel"
MOST_MODEL_BYTES = 2**32  # of a package: those that are published have a hundred megabytes

Content = TypeVar("Content")


class ModelFiles(Protocol):
    """Files by their names, with `/` between folders. Reading raises OSError."""

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...

    def map(self, name: str) -> Array:
        """Return the bytes of a large file, uint8."""


class FolderFiles:
    """The files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def read(self, name: str) -> bytes:
        return read_file(self._folder / name)

    def map(self, name: str) -> Array:
        path = self._folder / name
        if not path.stat().st_size:
            raise OSError(errno.EINVAL, "it is empty", path.name)
        return np.memmap(path, np.uint8, "r")


class ArchiveFiles:
    """The files below one folder of a zip archive."""

    def __init__(self, path: Path, folder: str) -> None:
        self._path, self._folder = path, folder
        with _opened_archive(path) as archive:
            self._names = {*archive.namelist()}

    def __contains__(self, name: str) -> bool:
        return self._folder + name in self._names

    def read(self, name: str) -> bytes:
        return self._read(name, MOST_BYTES)

    def map(self, name: str) -> Array:
        return np.frombuffer(self._read(name, MOST_MODEL_BYTES), np.uint8)

    def _read(self, name: str, most_bytes: int) -> bytes:
        if name not in self:
            raise FileNotFoundError(errno.ENOENT, "it is missing", name)
        with _opened_archive(self._path) as archive:
            member = archive.getinfo(self._folder + name)
            if member.file_size > most_bytes:
                message = f"it is larger than {most_bytes >> 20} MiB"
                raise OSError(errno.EFBIG, message, name)
            return archive.read(member)


def is_package(path: Path) -> bool:
    """Return whether a path is a package of Argos Translate, or a folder that one was unpacked
    into.
    """
    if path.is_dir():
        return (path / METADATA_FILE).is_file() and (path / MODEL_FOLDER / MODEL_FILE).is_file()
    return path.is_file() and path.suffix == PACKAGE_SUFFIX


def open_package(path: Path) -> ModelFiles:
    """Return the files of a package. Raises CheckpointError if it has none."""
    if path.is_dir():
        return FolderFiles(path)
    try:
        with _opened_archive(path) as archive:
            names = [name for name in archive.namelist() if name.count("/") <= 1]
    except OSError as error:
        raise CheckpointError(path, [f"cannot be read: {error.strerror}"]) from None
    folders = [
        name.removesuffix(METADATA_FILE)
        for name in names
        if name.rpartition("/")[2] == METADATA_FILE
    ]
    if len(folders) != 1:
        raise CheckpointError(path, [f"has {len(folders)} files {METADATA_FILE}, expected one"])
    return ArchiveFiles(path, folders[0])


def read_content(
    files: ModelFiles, name: str, parse: Callable[[bytes], Content], problems: list[str]
) -> Content | None:
    """Return what `parse` makes of a file; None, and a problem, if it is missing or damaged."""
    try:
        return parse(files.read(name))
    except FileNotFoundError:
        problems.append(f"{name} is missing")
    except OSError as error:
        problems.append(f"{name} cannot be read: {error.strerror}")
    except RecursionError:
        problems.append(f"{name} is not JSON: it nests too deep")
    except ValueError as error:
        problems.append(f"{name} cannot be read: {error}")
    return None


def read_object(
    files: ModelFiles, name: str, problems: list[str], *, is_required: bool = True
) -> dict[str, Any]:
    """Return the object of a JSON file; an empty one, and a problem, if there is none."""
    if not is_required and name not in files:
        return {}
    values = read_content(files, name, json.loads, problems)
    if values is not None and not isinstance(values, dict):
        problems.append(f"{name}: expected an object, found {type(values).__name__}")
    return values if isinstance(values, dict) else {}


@contextmanager
def _opened_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive. Raises OSError, also for one that is damaged, encrypted or compressed in
    an unknown way.
    """
    try:
        with open_archive(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise OSError(errno.EINVAL, f"it is no sound zip archive ({error})", path.name) from None

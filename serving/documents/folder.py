"""Lays documents out on disk: a folder for each, with the file that came and the one that goes."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import BinaryIO

from serving.documents.formats.registry import extension_of, result_name
from serving.storage import make_folder

_CHUNK_BYTES = 2**20
_ABANDONED_SECONDS = 3600.0  # a folder that no document has by then was left by a replica


class Folder:
    """Holds the files of all documents; names of strangers' choice are none of theirs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def source(self, document: str, name: str) -> Path:
        return self._path / document / f"source.{extension_of(name)}"

    def result(self, document: str, name: str) -> Path:
        return self._path / document / f"result.{extension_of(result_name(name))}"

    def take(self, document: str, name: str, file: BinaryIO) -> Path:
        """Copy a file that comes. Raises StorageError."""
        target = self.source(document, name)
        make_folder(target.parent)
        with open(target, "wb") as copy:
            shutil.copyfileobj(file, copy, _CHUNK_BYTES)
        return target

    @contextmanager
    def new_result(self, document: str, name: str) -> Iterator[Path]:
        """Give a place to write to; the result is there once the block has ended well."""
        result = self.result(document, name)
        begun = result.with_suffix(".begun")
        yield begun
        os.replace(begun, result)

    def holds(self, document: str) -> bool:
        """Tell whether anything of a document is there; nothing is once it was cancelled."""
        return (self._path / document).is_dir()

    def remove(self, document: str) -> None:
        shutil.rmtree(self._path / document, ignore_errors=True)

    def remove_abandoned(self, known: Iterable[str]) -> None:
        """Remove folders, but for those of known documents and those that have just come."""
        names = {*known}
        if not self._path.is_dir():
            return
        for folder in self._path.iterdir():
            if folder.name not in names and _age(folder) > _ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)

    def num_bytes(self) -> int:
        return sum(_size(path) for path in self._path.glob("*/*"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _age(path: Path) -> float:
    try:
        return time() - path.stat().st_mtime
    except OSError:
        return 0.0

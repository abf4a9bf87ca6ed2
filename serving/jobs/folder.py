"""The files of jobs on disk, in one folder; names that clients give never reach the disk."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import BinaryIO

from serving.errors import StorageError, TooLarge
from serving.storage.sqlite import make_folder

_CHUNK_BYTES = 2**20
_ABANDONED_SECONDS = 3600.0  # an entry that no job has by then was left by a killed replica


class JobFolder:
    """A folder whose entries, files or folders, are named by the ids of their owners."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, *names: str) -> Path:
        return self._path.joinpath(*names)

    def copy(self, file: BinaryIO, target: Path, max_mib: int | None = None) -> int:
        """Copy an upload to a path in this folder and return its size in bytes.

        Raises TooLarge and StorageError.
        """

        def chunks() -> Iterator[bytes]:
            num_bytes = 0
            while chunk := file.read(_CHUNK_BYTES):
                num_bytes += len(chunk)
                if max_mib is not None and num_bytes > max_mib * 2**20:
                    raise TooLarge("file", "the file", f"has more than {max_mib} MiB")
                yield chunk

        return self.write(target, chunks())

    def write(self, target: Path, chunks: Iterable[bytes]) -> int:
        """Write a file, whole or not at all, and return its size. Raises StorageError."""
        with self.replacing(target) as begun, begun.open("wb") as file:
            file.writelines(chunks)
        return target.stat().st_size

    @contextmanager
    def replacing(self, target: Path) -> Iterator[Path]:
        """Yield a temporary path, which becomes `target` if the block ends without an error.

        Raises StorageError where the file cannot be written.
        """
        make_folder(target.parent)
        with self._storing(), replacing(target) as begun:
            yield begun

    def remove(self, *names: str) -> None:
        """Remove entries of these names, if there are any. Raises StorageError."""
        for path in map(self.path, names):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with self._storing():
                    path.unlink(missing_ok=True)

    def remove_abandoned(self, job_ids: Iterable[str]) -> None:
        """Remove the entries of unknown names, except those of the last hour."""
        names = {*job_ids}
        for path in self._path.glob("*"):
            if path.name not in names and _age_seconds(path) > _ABANDONED_SECONDS:
                self.remove(path.name)

    def num_bytes(self) -> int:
        return sum(map(_size, self._path.rglob("*")))

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(self._path, error.strerror or error) from error


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path, which becomes `target` if the block ends without an error."""
    begun = target.with_name(f"{target.name}.begun")
    try:
        yield begun
        os.replace(begun, target)
    finally:
        begun.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # removed meanwhile
        return 0


def _age_seconds(path: Path) -> float:
    try:
        return time() - path.stat().st_mtime
    except OSError:
        return 0.0

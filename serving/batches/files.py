"""Lays the files of batches out on disk, each under its own id."""

import os
from collections.abc import Iterable
from pathlib import Path
from time import time
from typing import BinaryIO

from serving.errors import StorageError, TooLarge
from serving.storage import make_folder

MAX_FILE_MIB = 100
_CHUNK_BYTES = 2**20
_ABANDONED_SECONDS = 3600.0  # a file that nobody knows by then was left by a replica


class FileFolder:
    """Holds files whose ids are ours; the names that clients give them are nowhere on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, file_id: str) -> Path:
        return self._path / file_id

    def take(self, file_id: str, file: BinaryIO) -> int:
        """Copy a file that comes, and return its size. Raises TooLarge and StorageError."""
        num_bytes = 0

        def chunks() -> Iterable[bytes]:
            nonlocal num_bytes
            while chunk := file.read(_CHUNK_BYTES):
                num_bytes += len(chunk)
                if num_bytes > MAX_FILE_MIB * 2**20:
                    raise TooLarge("file", "the file", f"has more than {MAX_FILE_MIB} MiB")
                yield chunk

        self.write(file_id, chunks())
        return num_bytes

    def write(self, file_id: str, chunks: Iterable[bytes]) -> int:
        """Write a file, whole or not at all, and return its size. Raises StorageError."""
        make_folder(self._path)
        begun = self._path / f"{file_id}.begun"
        try:
            with begun.open("wb") as target:
                target.writelines(chunks)
            os.replace(begun, self.path(file_id))
        except OSError as error:
            raise StorageError(self._path, error.strerror) from error
        finally:
            begun.unlink(missing_ok=True)
        return self.path(file_id).stat().st_size

    def remove(self, file_id: str) -> None:
        self.path(file_id).unlink(missing_ok=True)

    def remove_abandoned(self, known: Iterable[str]) -> None:
        names = {*known}
        for path in self._path.glob("*") if self._path.is_dir() else ():
            if path.name not in names and time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink(missing_ok=True)

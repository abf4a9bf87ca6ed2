"""Files of jobs: uploads and results, in a folder or (`postgresql_files`) in the database.

A file belongs to an owner, such as a job, and is named by the owner's id, or by that and a name of
its own. Names that clients give are no part of it.
"""

import asyncio
import contextvars
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from time import time
from typing import BinaryIO, ParamSpec, TypeVar

from serving.errors import StorageError
from serving.storage.sqlite import make_folder

ABANDONED_SECONDS = 3600.0  # what no job has by then was left by a killed replica
_BEGUN = ".begun"  # ends the name of a file that is being written
COPY_BYTES = 2**20  # so much of a file is in memory at once
# Asyncio's own threads, few on a small machine, are those in which texts are tokenized: no request
# without state may wait until a database that is away, or a slow network, lets them go.
_THREADS = ThreadPoolExecutor(8, "files")
Arguments = ParamSpec("Arguments")
Entered = TypeVar("Entered")
Result = TypeVar("Result")


class FileStore(ABC):
    """The files of one kind of job. All methods block, and raise StorageError."""

    @abstractmethod
    def writing(self, owner: str, name: str = "") -> AbstractContextManager[Path]:
        """Yield the path of an empty place on disk. What the block has written there becomes the
        file when it ends without an error: whole or not at all.
        """

    @abstractmethod
    def reading(self, owner: str, name: str = "") -> AbstractContextManager[Path]:
        """Yield a path at which the file can be read within the block.

        Raises FileNotFoundError.
        """

    def open(self, owner: str, name: str = "") -> BinaryIO:
        """Return a file, open for reading: also after it is removed. Raises FileNotFoundError."""
        with self.reading(owner, name) as path:
            return path.open("rb")

    @abstractmethod
    def names(self) -> Iterator[tuple[str, str]]:
        """Yield the owner and the name of every file."""

    @abstractmethod
    def exists(self, owner: str) -> bool:
        """Return whether an owner has any file."""

    @abstractmethod
    def remove(self, *owners: str) -> None:
        """Remove all files of these owners, if there are any."""

    @abstractmethod
    def remove_abandoned(self, owners: Iterable[str]) -> None:
        """Remove the files of all other owners, except those of the last hour."""

    @abstractmethod
    def num_bytes(self) -> int:
        """Return the size of all files."""


class FolderFiles(FileStore):
    """Files in a folder: one for an owner, or a folder of files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def writing(self, owner: str, name: str = "") -> Iterator[Path]:
        target = self._path_of(owner, name)
        make_folder(target.parent)
        with self._storing(), replacing(target) as begun:
            yield begun

    @contextmanager
    def reading(self, owner: str, name: str = "") -> Iterator[Path]:
        path = self._path_of(owner, name)
        if not path.is_file():
            raise FileNotFoundError(path)
        yield path

    def names(self) -> Iterator[tuple[str, str]]:
        for path in sorted(self._path.glob("*")):
            for file in sorted(path.glob("*")) if path.is_dir() else [path]:
                if file.is_file() and file.suffix != _BEGUN:
                    yield path.name, "" if file is path else file.name

    def exists(self, owner: str) -> bool:
        return self._path_of(owner).exists()

    def remove(self, *owners: str) -> None:
        for path in map(self._path_of, owners):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with self._storing():
                    path.unlink(missing_ok=True)

    def remove_abandoned(self, owners: Iterable[str]) -> None:
        names = {*owners}
        for path in self._path.glob("*"):
            if path.name not in names and _age_seconds(path) > ABANDONED_SECONDS:
                self.remove(path.name)

    def num_bytes(self) -> int:
        return sum(map(_size, self._path.rglob("*")))

    def _path_of(self, owner: str, name: str = "") -> Path:
        return self._path / owner / name  # joining an empty name changes nothing

    @contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(self._path, error.strerror or error) from error


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path, which becomes `target` if the block ends without an error."""
    begun = target.with_name(f"{target.name}{_BEGUN}")
    try:
        yield begun
        os.replace(begun, target)
    finally:
        begun.unlink(missing_ok=True)


async def run_in_thread(
    work: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Result:
    """Return `work(*arguments)`, which may wait for a store, from a thread that only files have."""
    context = contextvars.copy_context()
    call = partial(context.run, work, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)


@asynccontextmanager
async def enter_in_thread(block: AbstractContextManager[Entered]) -> AsyncIterator[Entered]:
    """Enter and leave a block that blocks, such as `reading` and `writing`, in other threads."""
    value = await run_in_thread(block.__enter__)
    try:
        yield value
    except BaseException as error:
        leaving = run_in_thread(block.__exit__, type(error), error, error.__traceback__)
        # Shielded: whoever is cancelled may be cancelled again meanwhile.
        if not await asyncio.shield(leaving):
            raise
    else:
        await asyncio.shield(run_in_thread(block.__exit__, None, None, None))


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

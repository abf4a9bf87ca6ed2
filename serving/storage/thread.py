"""Runs the work of one database on a thread of its own, so that no event loop waits for a disk."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from serving.errors import StorageError
from serving.storage.database import open_database

Result = TypeVar("Result")


class DatabaseThread:
    """Does one piece of work after the other, in the order in which they were given to it.

    The database is opened by the first: a server that needs none makes no file.
    """

    def __init__(self, folder: Path, name: str, schema: str) -> None:
        self._folder, self._name, self._schema = folder, name, schema
        self._database: sqlite3.Connection | None = None
        self._executor = ThreadPoolExecutor(1, f"database-{name}")

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Return `work(database, *arguments)`. Raises StorageError.

        What was begun is done, also if nobody waits for it any more.
        """
        return await asyncio.shield(asyncio.wrap_future(self.start(work, *arguments)))

    def start(self, work: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Do work without waiting for it."""
        return self._executor.submit(self._done, work, arguments)

    def _done(self, work: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        try:
            if self._database is None:
                self._database = open_database(self._folder, self._name, self._schema)
            return work(self._database, *arguments)
        except sqlite3.OperationalError as error:
            raise StorageError(self._folder, error) from error


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Hold the database against other writers; what fails inside leaves no trace."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")

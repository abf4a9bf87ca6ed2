"""SQLite databases for what has to survive the server, each used from a thread of its own.

SQLite runs in WAL mode: replicas of one machine read and write the same file at once.
"""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate

from serving.errors import StorageError
from serving.storage.database import Arguments, Connection, Database, Result, Row
from serving.storage.schema import Schema, SchemaError, migrate

_BUSY_TIMEOUT_SECONDS = 10.0  # replicas of a machine write in turns


def make_folder(folder: Path) -> None:
    """Make a private folder if it is missing. Raises StorageError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(folder, error.strerror) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(folder, "cannot be written")


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Lock the folder: switching a new database to WAL fails, without waiting, beside others."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class SqliteConnection(Connection):
    """A connection to a file. Any thread may use it, one at a time."""

    SKIP_LOCKED = ""  # a transaction locks the whole database
    IS_LISTED = "IN (SELECT value FROM json_each(?))"

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(
            path,
            timeout=_BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection.row_factory = _dictionary
        # SQLite itself has it since 3.43.
        self._connection.create_function("octet_length", 1, _num_bytes, deterministic=True)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        # In KiB: an import of a translation memory writes all over its index of words.
        self._connection.execute("PRAGMA cache_size = -65536")

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        return self._connection.execute(query, tuple(values)).fetchall()

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        return self._connection.execute(statement, tuple(values)).rowcount

    def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        return self._connection.executemany(statement, rows).rowcount

    def insert_rows(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        places = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"
        self._connection.executemany(statement, rows)

    def analyze(self, *tables: str) -> None:
        pass  # SQLite chooses the plans without statistics

    @contextmanager
    def transaction(self, lock: str = "", is_durable: bool = True) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself ends it where the disk is full
                self._connection.execute("ROLLBACK")
            raise

    def time(self) -> float:
        return time.time()

    def create_tables(self, script: str) -> None:
        for statement in _statements(script):
            self._connection.execute(statement)

    def continue_numbers(self, table: str, column: str) -> None:
        pass  # SQLite always does

    def close(self) -> None:
        self._connection.close()


class SqliteDatabase(Database):
    """One file, used from a thread of its own, in the order of the calls.

    The first call opens the file: a server that needs none makes none. Replicas of one machine read
    and write it at once.
    """

    def __init__(self, folder: Path, schema: Schema) -> None:
        super().__init__(ThreadPoolExecutor(1, f"database-{schema.name}"))
        self._folder, self._schema = folder, schema
        self._connection: SqliteConnection | None = None
        self._lock = threading.Lock()

    def run_blocking(
        self,
        work: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = self._open()
                return work(self._connection, *arguments, **options)
        except (sqlite3.DatabaseError, SchemaError) as error:
            raise StorageError(self._folder, error) from error

    def close(self) -> None:
        """Finish what was started, and close the file."""
        self._executor.shutdown()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> SqliteConnection:
        make_folder(self._folder)
        with _folder_lock(self._folder):
            connection = SqliteConnection(sqlite_path(self._folder, self._schema))
            try:
                migrate(connection, self._schema)
            except BaseException:
                connection.close()
                raise
        return connection


def is_open_elsewhere(path: Path) -> bool:
    """Return whether another connection to a file is open. Raises StorageError."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        # In WAL mode every connection holds a shared lock for as long as it is open.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return True
        raise StorageError(path, error) from error
    except sqlite3.DatabaseError as error:
        raise StorageError(path, error) from error
    finally:
        connection.close()
    return False


def sqlite_path(folder: Path, schema: Schema) -> Path:
    return folder / f"{schema.name}.sqlite3"


def _num_bytes(text: str) -> int:
    return len(text.encode())


def _dictionary(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> Row:
    """Return a row by the names of its columns."""
    return {column[0]: value for column, value in zip(cursor.description, values, strict=True)}


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script: `executescript` would end the transaction it runs in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""

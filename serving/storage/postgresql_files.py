"""Files of jobs in a PostgreSQL database."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from serving.errors import StorageError
from serving.storage.database import Connection
from serving.storage.files import ABANDONED_SECONDS, FileStore
from serving.storage.postgresql import PostgresqlServer
from serving.storage.schema import Migration, Schema, migrate

_CHUNK_BYTES = 2**20
SCHEMA = Schema(
    "files",
    [
        Migration("""
            CREATE TABLE IF NOT EXISTS stored_files (
                number INTEGER PRIMARY KEY, store TEXT NOT NULL, owner TEXT NOT NULL,
                name TEXT NOT NULL, num_bytes INTEGER NOT NULL, created_at REAL NOT NULL,
                UNIQUE (store, owner, name)
            ) STRICT;
            CREATE TABLE IF NOT EXISTS file_chunks (
                file INTEGER NOT NULL REFERENCES stored_files ON DELETE CASCADE,
                number INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (file, number)
            ) STRICT, WITHOUT ROWID;
        """)
    ],
)


class DatabaseFiles(FileStore):
    """Files in the database, in rows of a mebibyte, so that no more of one is in memory at once.

    Those that read and write them do so in a temporary folder of this machine.

    name: of the store.
    """

    def __init__(self, server: PostgresqlServer, name: str) -> None:
        self._server, self._name = server, name
        self._is_migrated = False

    @contextmanager
    def writing(self, owner: str, name: str = "") -> Iterator[Path]:
        with _temporary_folder() as folder:
            path = folder / "file"
            yield path
            with self._connection() as connection:
                _store(connection, (self._name, owner, name), path)

    @contextmanager
    def reading(self, owner: str, name: str = "") -> Iterator[Path]:
        with _temporary_folder() as folder:
            path = folder / "file"
            with self._connection() as connection:
                _fetch(connection, (self._name, owner, name), path)
            yield path

    def names(self) -> Iterator[tuple[str, str]]:
        query = "SELECT owner, name FROM stored_files WHERE store = ? ORDER BY owner, name"
        with self._connection() as connection:
            rows = connection.rows(query, (self._name,))
        for row in rows:
            yield row["owner"], row["name"]

    def exists(self, owner: str) -> bool:
        query = "SELECT 1 FROM stored_files WHERE store = ? AND owner = ?"
        with self._connection() as connection:
            return connection.row(query, (self._name, owner)) is not None

    def remove(self, *owners: str) -> None:
        statement = "DELETE FROM stored_files WHERE store = ? AND owner = ?"
        with self._connection() as connection:
            connection.execute_many(statement, [(self._name, owner) for owner in owners])

    def remove_abandoned(self, owners: Iterable[str]) -> None:
        query = "SELECT DISTINCT owner FROM stored_files WHERE store = ? AND created_at < ?"
        with self._connection() as connection:
            before = connection.time() - ABANDONED_SECONDS
            stored = {row["owner"] for row in connection.rows(query, (self._name, before))}
        self.remove(*(stored - {*owners}))

    def num_bytes(self) -> int:
        query = (
            "SELECT CAST(coalesce(sum(num_bytes), 0) AS BIGINT) AS num_bytes"
            " FROM stored_files WHERE store = ?"
        )
        with self._connection() as connection:
            [row] = connection.rows(query, (self._name,))
        return int(row["num_bytes"])

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with self._server.connection_for_file() as connection:
            if not self._is_migrated:
                migrate(connection, SCHEMA)
                self._is_migrated = True
            yield connection


def _store(connection: Connection, key: tuple[str, str, str], path: Path) -> None:
    """Store a file in the place of an older one, in one transaction."""
    with connection.transaction(f"file {'/'.join(key)}"), path.open("rb") as file:
        removal = "DELETE FROM stored_files WHERE store = ? AND owner = ? AND name = ?"
        connection.execute(removal, key)
        [row] = connection.rows(
            "INSERT INTO stored_files (store, owner, name, num_bytes, created_at)"
            " VALUES (?, ?, ?, ?, ?) RETURNING number",
            (*key, path.stat().st_size, connection.time()),
        )
        for number, data in enumerate(iter(partial(file.read, _CHUNK_BYTES), b"")):
            insertion = "INSERT INTO file_chunks (file, number, data) VALUES (?, ?, ?)"
            connection.execute(insertion, (row["number"], number, data))


def _fetch(connection: Connection, key: tuple[str, str, str], path: Path) -> None:
    """Write a stored file to a path. Raises FileNotFoundError, also if it is removed meanwhile."""
    query = "SELECT number, num_bytes FROM stored_files WHERE store = ? AND owner = ? AND name = ?"
    row = connection.row(query, key)
    if row is None:
        raise FileNotFoundError("/".join(key))
    with path.open("wb") as file:
        for number in range(-(-row["num_bytes"] // _CHUNK_BYTES)):
            chunk_query = "SELECT data FROM file_chunks WHERE file = ? AND number = ?"
            chunk = connection.row(chunk_query, (row["number"], number))
            if chunk is None:
                raise FileNotFoundError("/".join(key))
            file.write(chunk["data"])


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yield a private folder that is removed. Raises StorageError where there is no room."""
    try:
        with tempfile.TemporaryDirectory(prefix="attendant-") as folder:
            yield Path(folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        advice = "name another folder with TMPDIR"
        raise StorageError(tempfile.gettempdir(), error.strerror or error, advice) from error

"""The state of a server: all that has to survive it, in a folder or in a PostgreSQL database."""

import os
from abc import ABC, abstractmethod
from pathlib import Path

from serving.errors import StorageError
from serving.storage.database import Database
from serving.storage.files import FileStore, FolderFiles
from serving.storage.schema import Schema
from serving.storage.sqlite import SqliteDatabase, make_folder

_URL_PREFIXES = ("postgresql://", "postgres://")


class State(ABC):
    """Opens stores. It is opened once in a process.

    place: the folder, or the URL without its password.
    is_shared: whether servers of several machines may use it.
    """

    place: str
    is_shared: bool

    @abstractmethod
    def database(self, schema: Schema) -> Database:
        """Return a database that has the tables of a schema."""

    @abstractmethod
    def files(self, name: str) -> FileStore:
        """Return the files of one kind."""

    @abstractmethod
    def check(self) -> None:
        """Raise StorageError if the place cannot be used."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class FolderState(State):
    """A folder of this machine: SQLite databases and files."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        self.place, self._folder = str(folder), folder

    def database(self, schema: Schema) -> Database:
        return SqliteDatabase(self._folder, schema)

    def files(self, name: str) -> FileStore:
        return FolderFiles(self._folder / name)

    def check(self) -> None:
        make_folder(self._folder)

    def close(self) -> None:
        pass  # each connection is closed with the process


def open_state(place: str | Path) -> State:
    """Return the state at a place: the path of a folder, or a URL `postgresql://...`.

    Raises StorageError for a URL that cannot be read.
    """
    if not is_url(place):
        return FolderState(Path(place))
    try:
        from serving.storage.postgresql_state import PostgresqlState
    except ModuleNotFoundError:
        reason = "needs psycopg: pip install 'attendant[postgresql]'"
        raise StorageError("state in PostgreSQL", reason, advice="") from None
    return PostgresqlState(str(place))


def is_url(place: str | Path) -> bool:
    """Return whether a place of state is a database, and no folder."""
    return str(place).startswith(_URL_PREFIXES)


def default_state_folder() -> Path:
    """Return the default folder for state, from the XDG base directories."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "attendant"

"""The state of a server: all that has to survive it, in a folder or in a PostgreSQL database."""

from abc import ABC, abstractmethod
from pathlib import Path

from serving.storage.database import Database
from serving.storage.files import FileStore, FolderFiles
from serving.storage.schema import Schema
from serving.storage.sqlite import SqliteDatabase, make_folder


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

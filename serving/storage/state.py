"""The state of a server: all that has to survive it, in a folder or in a PostgreSQL database."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from serving.storage.database import Database
from serving.storage.files import FileStore, FolderFiles
from serving.storage.schema import Schema
from serving.storage.sqlite import SqliteDatabase, is_open_elsewhere, make_folder, sqlite_path


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
    def is_reachable(self) -> bool:
        """Return whether the place is there; a database may be starting."""

    @abstractmethod
    def check(self, schemas: Iterable[Schema] = ()) -> None:
        """Raise StorageError if the place cannot be used, or if a newer version of the program has
        changed the tables of one of the schemas. Others are brought to their newest version.
        """

    @abstractmethod
    def is_in_use(self) -> bool:
        """Return whether another process uses the place, as far as can be seen: servers that have
        not read or written anything for a minute cannot. Raises StorageError.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class FolderState(State):
    """A folder of this machine: SQLite databases and files."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        self.place, self._folder = str(folder), folder
        self._databases: list[SqliteDatabase] = []

    def database(self, schema: Schema) -> Database:
        database = SqliteDatabase(self._folder, schema)
        self._databases.append(database)
        return database

    def files(self, name: str) -> FileStore:
        return FolderFiles(self._folder / name)

    def is_reachable(self) -> bool:
        return True

    def check(self, schemas: Iterable[Schema] = ()) -> None:
        make_folder(self._folder)
        for schema in schemas:
            if sqlite_path(self._folder, schema).exists():  # it is made when it is needed
                self.database(schema).run_blocking(lambda connection: None)

    def is_in_use(self) -> bool:
        return any(map(is_open_elsewhere, self._folder.glob("*.sqlite3")))

    def close(self) -> None:
        for database in self._databases:
            database.close()

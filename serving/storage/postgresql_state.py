"""The state of servers in a PostgreSQL database."""

from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.postgresql import PostgresqlDatabase, PostgresqlServer
from serving.storage.postgresql_files import DatabaseFiles
from serving.storage.schema import Schema
from serving.storage.state import State


class PostgresqlState(State):
    is_shared = True

    def __init__(self, url: str) -> None:
        """Raises StorageError for a URL that cannot be read."""
        self._server = PostgresqlServer(url)
        self.place = self._server.name

    def database(self, schema: Schema) -> Database:
        return PostgresqlDatabase(self._server, schema)

    def files(self, name: str) -> FileStore:
        return DatabaseFiles(self._server, name)

    def check(self) -> None:
        self._server.check()

    def close(self) -> None:
        self._server.close()

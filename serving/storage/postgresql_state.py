"""The state of servers in a PostgreSQL database."""

from collections.abc import Iterable

from serving.storage.database import Database
from serving.storage.files import FileStore
from serving.storage.postgresql import PostgresqlDatabase, PostgresqlServer
from serving.storage.postgresql_files import SCHEMA as FILES_SCHEMA
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

    def is_reachable(self) -> bool:
        return self._server.is_reachable()

    def check(self, schemas: Iterable[Schema] = ()) -> None:
        self._server.check()
        for schema in (*schemas, FILES_SCHEMA):
            self.database(schema).run_blocking(lambda connection: None)

    def is_in_use(self) -> bool:
        return self._server.is_in_use()

    def close(self) -> None:
        self._server.close()

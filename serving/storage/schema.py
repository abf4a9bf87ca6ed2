"""Schemas and their versions: which tables a store has, and how older databases get them."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.storage.database import Connection

VERSIONS_TABLE = "schema_versions"
_VERSIONS = f"""
CREATE TABLE IF NOT EXISTS {VERSIONS_TABLE} (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, usable_from INTEGER NOT NULL
) STRICT;
"""


# Instead of the version from which on the tables can be used, until all of a copy is there.
_UNFINISHED = 10**9


class SchemaError(Exception):
    """The database cannot be used by this version. Its text ends a sentence that names it."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What brings a database from one version of a schema to the next.

    script: statements.
    breaks_older: whether versions of the program that do not know it can no longer use the
        database. Else old and new versions use it together while a server is updated, and an
        update can be taken back.
    """

    script: str
    breaks_older: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one store.

    migrations: the first makes the tables, each other changes them. They are never changed once
        released. The first one leaves tables alone that are there already.
    may_be_unfinished: whether tables are opened, too, that a copy has not filled yet: only the copy
        itself does.
    """

    name: str
    migrations: Sequence[Migration]
    may_be_unfinished: bool = False


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """usable_from: the oldest version of the program's schema that can use the tables."""

    version: int
    usable_from: int

    @property
    def is_unfinished(self) -> bool:
        return self.usable_from == _UNFINISHED


def read_version(connection: Connection, schema: Schema) -> SchemaVersion:
    query = "SELECT version, usable_from FROM schema_versions WHERE name = ?"
    row = connection.row(query, (schema.name,))
    return SchemaVersion(row["version"], row["usable_from"]) if row else SchemaVersion(0, 1)


def set_unfinished(connection: Connection, schema: Schema, is_unfinished: bool) -> None:
    """Let only a copy open the tables, or everybody again. The tables have the newest version."""
    numbers = (n for n, migration in enumerate(schema.migrations, 1) if migration.breaks_older)
    usable_from = _UNFINISHED if is_unfinished else max(numbers, default=1)
    change = "UPDATE schema_versions SET usable_from = ? WHERE name = ?"
    connection.execute(change, (usable_from, schema.name))


def migrate(connection: Connection, schema: Schema) -> None:
    """Bring a database to the newest version of a schema, once, however many begin at a time.

    Raises SchemaError if a newer version of the program has changed it so that this one cannot use
    it.
    """
    with connection.transaction(f"schema {schema.name}"):
        connection.create_tables(_VERSIONS)
        stored, newest = read_version(connection, schema), len(schema.migrations)
        version, usable_from = stored.version, stored.usable_from
        if stored.is_unfinished and not schema.may_be_unfinished:
            message = "has an unfinished copy of other state; run `attendant state copy` again"
            raise SchemaError(message)
        if usable_from > newest and not stored.is_unfinished:
            message = (
                f"its {schema.name} have version {version} of a newer Attendant, and this one knows"
                f" up to {newest}; update it"
            )
            raise SchemaError(message)
        if version >= newest:
            return
        for number, migration in enumerate(schema.migrations[version:], version + 1):
            connection.create_tables(migration.script)
            usable_from = max(usable_from, number if migration.breaks_older else 1)
        connection.execute(
            "INSERT INTO schema_versions (name, version, usable_from) VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE"
            " SET version = excluded.version, usable_from = excluded.usable_from",
            (schema.name, newest, usable_from),
        )

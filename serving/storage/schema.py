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
    """

    name: str
    migrations: Sequence[Migration]


def migrate(connection: Connection, schema: Schema) -> None:
    """Bring a database to the newest version of a schema, once, however many begin at a time.

    Raises SchemaError if a newer version of the program has changed it so that this one cannot use
    it.
    """
    with connection.transaction(f"schema {schema.name}"):
        connection.create_tables(_VERSIONS)
        query = "SELECT version, usable_from FROM schema_versions WHERE name = ?"
        row = connection.row(query, (schema.name,)) or {"version": 0, "usable_from": 1}
        version, newest = row["version"], len(schema.migrations)
        if row["usable_from"] > newest:
            message = (
                f"its {schema.name} have version {version} of a newer Attendant, and this one knows"
                f" up to {newest}; update it"
            )
            raise SchemaError(message)
        if version >= newest:
            return
        usable_from = row["usable_from"]
        for number, migration in enumerate(schema.migrations[version:], version + 1):
            connection.create_tables(migration.script)
            usable_from = number if migration.breaks_older else usable_from
        connection.execute(
            "INSERT INTO schema_versions (name, version, usable_from) VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE"
            " SET version = excluded.version, usable_from = excluded.usable_from",
            (schema.name, newest, usable_from),
        )

"""Copy all state from one place to another, of either kind.

Until a copy is complete no server opens its target: the versions of its schemas say so. A copy that
was interrupted is begun again.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from serving.errors import StorageError
from serving.storage.database import Connection, Row
from serving.storage.files import FileStore
from serving.storage.schema import VERSIONS_TABLE, Schema, migrate, read_version, set_unfinished
from serving.storage.sqlite import SqliteConnection
from serving.storage.state import State

FILES_OF = "files of"
_ROWS_AT_ONCE = 1000
# Called with the number of rows or files that were copied.
Report = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Table:
    """columns: all of them. key: those of the primary key. is_numbered: whether the database gives
    a row without a key the next number.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    is_numbered: bool


def tables_of(schema: Schema) -> list[Table]:
    """Return the tables of a schema, those that others refer to first."""
    with closing(SqliteConnection(Path(":memory:"))) as connection:
        migrate(connection, schema)
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> ? ORDER BY rowid"
        names = [row["name"] for row in connection.rows(query, (VERSIONS_TABLE,))]
        return [_read_table(connection, name) for name in names]


def _read_table(connection: Connection, name: str) -> Table:
    columns = connection.rows("SELECT * FROM pragma_table_info(?) ORDER BY cid", (name,))
    key = sorted((column for column in columns if column["pk"]), key=lambda column: column["pk"])
    return Table(
        name,
        columns=tuple(column["name"] for column in columns),
        key=tuple(column["name"] for column in key),
        is_numbered=[column["type"] for column in key] == ["INTEGER"],
    )


class StoredTables:
    """The tables of one schema at one place. All methods raise StorageError."""

    def __init__(self, state: State, schema: Schema) -> None:
        self.schema = schema
        self.tables = tables_of(schema)
        self._database = state.database(schema)

    @property
    def version(self) -> int:
        return self._database.run_blocking(read_version, self.schema).version

    @property
    def is_unfinished(self) -> bool:
        """Return whether the tables are those of a copy that was interrupted."""
        return self._database.run_blocking(read_version, self.schema).is_unfinished

    def set_unfinished(self, is_unfinished: bool) -> None:
        self._database.run_blocking(set_unfinished, self.schema, is_unfinished)

    def count_rows(self) -> dict[str, int]:
        """Return the number of rows by the name of the table."""
        return {table.name: self._database.run_blocking(_count, table) for table in self.tables}

    def rows(self, table: Table) -> Iterator[list[Row]]:
        """Yield all rows in the order of their keys, so many at a time as fit into memory."""
        last: Row | None = None
        while rows := self._database.run_blocking(_rows_after, table, last):
            yield rows
            last = rows[-1]

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        self._database.run_blocking(_add, table, rows)

    def end_adding(self, table: Table) -> None:
        """Let the next row of a table have the number after its last, and queries be fast."""
        self._database.run_blocking(_end_adding, table)

    def clear(self) -> None:
        for table in reversed(self.tables):
            self._database.run_blocking(_delete, table)


def _count(connection: Connection, table: Table) -> int:
    [row] = connection.rows(f"SELECT count(*) AS num_rows FROM {table.name}")
    return int(row["num_rows"])


def _rows_after(connection: Connection, table: Table, last: Row | None) -> list[Row]:
    columns, key = ", ".join(table.columns), ", ".join(table.key)
    marks = ", ".join("?" * len(table.key))
    condition = "" if last is None else f"WHERE ({key}) > ({marks})"
    query = f"SELECT {columns} FROM {table.name} {condition} ORDER BY {key} LIMIT {_ROWS_AT_ONCE}"
    return connection.rows(query, [last[name] for name in table.key] if last else ())


def _add(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    with connection.transaction():
        values = ([row[name] for name in table.columns] for row in rows)
        connection.insert_rows(table.name, table.columns, values)


def _end_adding(connection: Connection, table: Table) -> None:
    if table.is_numbered:
        connection.continue_numbers(table.name, *table.key)
    connection.analyze(table.name)


def _delete(connection: Connection, table: Table) -> None:
    connection.execute(f"DELETE FROM {table.name}")


class StateContents:
    """All that is stored at one place: tables by their schemas, and files. All methods raise
    StorageError.
    """

    def __init__(self, state: State, schemas: Sequence[Schema], file_stores: Sequence[str]) -> None:
        self._place = state.place
        self.stores = [StoredTables(state, schema) for schema in schemas]
        self.files = {name: state.files(name) for name in file_stores}

    def check_versions(self) -> None:
        """Raise StorageError if a newer version of the program has added to the tables: what it
        has stored there would be left out.
        """
        for store in self.stores:
            name, newest = store.schema.name, len(store.schema.migrations)
            if (version := store.version) > newest:
                reason = (
                    f"its {name} have version {version} of a newer Attendant, and this one knows"
                    f" up to {newest}; copy it with that one"
                )
                raise StorageError(self._place, reason, advice="")

    def count(self) -> dict[str, int]:
        """Return the numbers of rows by their table, and of files by their kind."""
        counts: dict[str, int] = {}
        for store in self.stores:
            counts |= store.count_rows()
        for name, files in self.files.items():
            counts[f"{FILES_OF} {name}"] = sum(1 for _ in files.names())
        return counts

    def prepare(self) -> None:
        """Let no server use the place until `complete`, and remove what an interrupted copy left.

        Raises StorageError if it has any other state.
        """
        is_left = any(store.is_unfinished for store in self.stores)
        if not is_left and (counts := {name: n for name, n in self.count().items() if n}):
            reason = f"has state already ({describe_counts(counts)})"
            advice = "copy to an empty folder or database"
            raise StorageError(self._place, reason, advice)
        for store in self.stores:
            store.set_unfinished(True)
        for store in self.stores:
            store.clear()
        for files in self.files.values():
            files.remove(*{owner for owner, _ in files.names()})

    def complete(self) -> None:
        for store in self.stores:
            store.set_unfinished(False)


def copy_state(
    source: State,
    target: State,
    schemas: Sequence[Schema],
    file_stores: Sequence[str],
    start: Callable[[int], Report],
) -> dict[str, int]:
    """Copy all rows and files, and return their numbers by table and kind.

    start: called with how many there are; returns what is called with how many were copied since.
    Raises StorageError, also if a server uses one of the places, or if the target has state.
    """
    for state in (source, target):
        if state.is_in_use():
            raise StorageError(state.place, "is used by a server", advice="stop it")
    origin = StateContents(source, schemas, file_stores)
    targets = [replace(schema, may_be_unfinished=True) for schema in schemas]
    destination = StateContents(target, targets, file_stores)
    for contents in (origin, destination):
        contents.check_versions()
    counts = origin.count()
    if not any(counts.values()):
        raise StorageError(source.place, "has no state", advice="")
    destination.prepare()
    report = start(sum(counts.values()))
    for read, written in zip(origin.stores, destination.stores, strict=True):
        _copy_tables(read, written, report)
    for name, files in origin.files.items():
        _copy_files(files, destination.files[name], report)
    if (copied := destination.count()) != counts:
        missing = describe_counts({name: counts[name] - copied[name] for name in counts})
        raise StorageError(target.place, f"has not got everything ({missing})", advice="")
    destination.complete()
    return counts


def _copy_tables(source: StoredTables, target: StoredTables, report: Report) -> None:
    for table in source.tables:
        for rows in source.rows(table):
            target.add(table, rows)
            report(len(rows))
        target.end_adding(table)


def _copy_files(source: FileStore, target: FileStore, report: Report) -> None:
    for owner, name in source.names():
        with source.reading(owner, name) as path, target.writing(owner, name) as copy:
            shutil.copyfile(path, copy)
        report(1)


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return numbers with their names, without what there is none of."""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"

"""All state copied from one place to another, of either kind, and what keeps it from that."""

import hashlib
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from serving.deployments.stores import SCHEMAS
from serving.errors import StorageError
from serving.storage.copying import StoredTables, copy_state, tables_of
from serving.storage.database import Connection
from serving.storage.opening import open_state
from serving.storage.schema import Migration, Schema
from tests.postgresql import NEEDS_POSTGRESQL

NUM_ROWS = 1_200  # more than are read at once
NODES = Schema(
    "nodes",
    [
        Migration("""
            CREATE TABLE nodes (
                number INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE, share REAL, data BLOB
            ) STRICT;
            CREATE TABLE edges (
                node INTEGER NOT NULL REFERENCES nodes ON DELETE CASCADE,
                kind TEXT NOT NULL, PRIMARY KEY (node, kind)
            ) STRICT, WITHOUT ROWID;
        """)
    ],
)
FILES = {("one", ""): b"", ("two", "input"): os.urandom(2_500_000), ("two", "output"): b"b"}


def ignore_progress(total: int) -> Callable[[int], object]:
    return lambda count: None


def fill(place: str) -> None:
    """Store rows of all types and sizes, whose numbers have gaps, and files."""
    with closing(open_state(place)) as state:
        state.database(NODES).run_blocking(add_rows)
        for (owner, name), data in FILES.items():
            with state.files("documents").writing(owner, name) as path:
                path.write_bytes(data)


def add_rows(connection: Connection) -> None:
    choose = random.Random(7)
    labels = [f"{choose.choice('aBéЖ中😀 ')}{number}" for number in range(NUM_ROWS)]
    values = [
        (3 * number + 5, label, choose.choice([None, 0.1, -1e300]), bytes([number % 256]) * 3)
        for number, label in enumerate(labels)
    ]
    with connection.transaction():
        connection.execute_many("INSERT INTO nodes VALUES (?, ?, ?, ?)", values)
        edges = [(number, label[:1]) for number, label, _, _ in values]
        connection.execute_many("INSERT INTO edges VALUES (?, ?)", edges)


def all_rows(place: str, *schemas: Schema) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table, in an order that no collation changes."""
    with closing(open_state(place)) as state:
        rows = {}
        for tables in (StoredTables(state, schema) for schema in schemas):
            for table in tables.tables:
                batches = tables.rows(table)
                rows[table.name] = sorted(
                    (tuple(map(comparable, row.values())) for batch in batches for row in batch),
                    key=repr,
                )
        return rows


def comparable(value: object) -> object:
    return bytes(value) if isinstance(value, bytes | memoryview) else value


def all_files(place: str, store: str) -> dict[tuple[str, str], str]:
    with closing(open_state(place)) as state:
        files, digests = state.files(store), {}
        for owner, name in files.names():
            with files.reading(owner, name) as path:
                digests[owner, name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return digests


def copy(
    source: str,
    target: str,
    schemas: Sequence[Schema] = (NODES,),
    start: Callable[[int], Callable[[int], object]] = ignore_progress,
) -> dict[str, int]:
    with closing(open_state(source)) as origin, closing(open_state(target)) as destination:
        return copy_state(origin, destination, schemas, ("documents",), start)


@NEEDS_POSTGRESQL
def test_a_round_trip_through_a_database_is_equal_row_by_row(
    tmp_path: Path, database_url: str
) -> None:
    first, last = str(tmp_path / "first"), str(tmp_path / "last")
    fill(first)

    counts = copy(first, database_url)
    copy(database_url, last)

    assert counts == {"nodes": NUM_ROWS, "edges": NUM_ROWS, "files of documents": 3}
    assert all_rows(first, NODES) == all_rows(database_url, NODES) == all_rows(last, NODES)
    digests = {key: hashlib.sha256(data).hexdigest() for key, data in FILES.items()}
    assert all_files(database_url, "documents") == all_files(last, "documents") == digests


def test_numbers_go_on_after_the_highest(state_place: str, tmp_path: Path) -> None:
    fill(str(tmp_path / "source"))
    copy(str(tmp_path / "source"), state_place)

    with closing(open_state(state_place)) as state:
        insertion = "INSERT INTO nodes (label) VALUES ('new') RETURNING number"
        work = state.database(NODES).run_blocking
        [row] = work(lambda connection: connection.rows(insertion))
    assert row["number"] == 3 * (NUM_ROWS - 1) + 5 + 1


def test_a_target_with_state_is_refused_and_stays(state_place: str, tmp_path: Path) -> None:
    fill(str(tmp_path / "source"))
    fill(state_place)
    before = all_rows(state_place, NODES)

    with pytest.raises(StorageError, match=f"has state already \\({NUM_ROWS} nodes, .*empty"):
        copy(str(tmp_path / "source"), state_place)

    assert all_rows(state_place, NODES) == before


def test_a_source_without_state_is_refused(state_place: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no state"):
        copy(state_place, str(tmp_path / "target"))


class Interrupted(Exception):
    pass


def test_an_interrupted_copy_is_used_by_nobody_and_begun_again(
    state_place: str, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    fill(source)

    def interrupt(total: int) -> Callable[[int], object]:
        def report(count: int) -> None:
            nonlocal total
            total -= count
            if total < 700:
                raise Interrupted

        return report

    with pytest.raises(Interrupted):
        copy(source, state_place, start=interrupt)
    with (
        closing(open_state(state_place)) as state,
        pytest.raises(StorageError, match=r"has an unfinished copy .* run `attendant state copy`"),
    ):
        state.check([NODES])
    with pytest.raises(StorageError, match="has an unfinished copy"):
        copy(state_place, str(tmp_path / "other"))

    copy(source, state_place)

    assert all_rows(state_place, NODES) == all_rows(source, NODES)
    assert len(all_files(state_place, "documents")) == 3


def use(place: str, is_used: Any, may_end: Any) -> None:
    """Use state as a server does, in a process of its own."""
    state = open_state(place)
    state.database(NODES).run_blocking(lambda connection: connection.rows("SELECT 1"))
    is_used.set()
    may_end.wait(60)


@pytest.mark.parametrize("is_source", [True, False])
def test_what_a_server_uses_is_not_copied(
    state_place: str, tmp_path: Path, is_source: bool
) -> None:
    other = str(tmp_path / "other")
    source, target = (state_place, other) if is_source else (other, state_place)
    fill(source)
    context = multiprocessing.get_context("spawn")
    is_used, may_end = context.Event(), context.Event()
    server = context.Process(target=use, args=(state_place, is_used, may_end))
    server.start()
    try:
        assert is_used.wait(60)
        with pytest.raises(StorageError, match="is used by a server; stop it"):
            copy(source, target)
    finally:
        may_end.set()
        server.join(60)
    wait_until_unused(state_place)
    copy(source, target)


def wait_until_unused(place: str) -> None:
    deadline = time.monotonic() + 10
    with closing(open_state(place)) as state:
        while state.is_in_use() and time.monotonic() < deadline:
            time.sleep(0.05)


def test_newer_tables_are_not_copied(state_place: str, tmp_path: Path) -> None:
    """This version does not know their columns, and would leave them out."""
    fill(state_place)
    newer = Migration("ALTER TABLE nodes ADD COLUMN colour TEXT;")
    with closing(open_state(state_place)) as state:
        state.check([Schema("nodes", [*NODES.migrations, newer])])
    wait_until_unused(state_place)

    with pytest.raises(StorageError, match="its nodes have version 2 of a newer Attendant"):
        copy(state_place, str(tmp_path / "target"))


def test_every_table_of_the_server_can_be_copied() -> None:
    """Each has a primary key, by which its rows are read in turns, and a name of its own."""
    tables = [table for schema in SCHEMAS for table in tables_of(schema)]
    assert all(table.key for table in tables)
    assert len({table.name for table in tables}) == len(tables) > 0

"""State of both kinds: what stores rely on."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serving.errors import StorageError
from serving.storage.database import Connection
from serving.storage.files import FileStore
from serving.storage.opening import open_state
from serving.storage.schema import Migration, Schema
from serving.storage.state import State

FIRST = Migration("""
    CREATE TABLE IF NOT EXISTS counts (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, count INTEGER NOT NULL,
        share REAL NOT NULL DEFAULT 0, data BLOB
    ) STRICT;
    CREATE INDEX IF NOT EXISTS counts_by_count ON counts (count);
""")
COUNTS = Schema("counts", [FIRST])
INSERT = "INSERT INTO counts (name, count) VALUES (?, ?)"


def add(connection: Connection, name: str, count: int) -> None:
    connection.execute(INSERT, (name, count))


def counts(connection: Connection) -> dict[str, int]:
    query = "SELECT name, count FROM counts ORDER BY name"
    return {row["name"]: row["count"] for row in connection.rows(query)}


def test_values_come_back_as_they_went(state: State) -> None:
    database = state.database(COUNTS)
    values = ("Zoë \u4e2d\U0001f600 ' ? % \\", 2**60, 0.1, bytes(range(256)))
    statement = "INSERT INTO counts (name, count, share, data) VALUES (?, ?, ?, ?)"
    assert database.run_blocking(lambda connection: connection.execute(statement, values)) == 1

    [row] = database.run_blocking(lambda connection: connection.rows("SELECT * FROM counts"))

    assert (row["name"], row["count"], row["share"], bytes(row["data"])) == values


def test_a_transaction_that_raises_leaves_nothing(state: State) -> None:
    database = state.database(COUNTS)

    def add_two(connection: Connection) -> None:
        with connection.transaction():
            add(connection, "a", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.run_blocking(add_two)
    with pytest.raises(StorageError):
        database.run_blocking(lambda connection: connection.execute("INSERT INTO nothing"))
    assert database.run_blocking(counts) == {}


def test_transactions_of_one_name_run_one_after_the_other(state: State, state_place: str) -> None:
    """Also those of several processes: each thread here opens the state by itself."""
    state.database(COUNTS).run_blocking(add, "a", 0)

    def increase(connection: Connection) -> None:
        with connection.transaction("a"):
            count = counts(connection)["a"] + 1
            connection.execute("UPDATE counts SET count = ? WHERE name = 'a'", (count,))

    def increase_often() -> None:
        other = open_state(state_place)
        database = other.database(COUNTS)
        for _ in range(50):
            database.run_blocking(increase)
        other.close()

    threads = [threading.Thread(target=increase_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.database(COUNTS).run_blocking(counts) == {"a": 150}


def test_the_number_of_changed_rows_is_returned(state: State) -> None:
    def change(connection: Connection) -> list[int]:
        ignore = f"{INSERT} ON CONFLICT (name) DO NOTHING"
        return [
            connection.execute_many(INSERT, [("a", 1), ("b", 2)]),
            connection.execute_many(ignore, [("b", 1), ("c", 3)]),
            connection.execute(ignore, ("c", 3)),
            connection.execute("UPDATE counts SET count = 0 WHERE count > 1"),
            connection.execute_many(INSERT, []),
        ]

    assert state.database(COUNTS).run_blocking(change) == [2, 1, 0, 2, 0]


async def test_work_is_done_off_the_event_loop(state: State) -> None:
    database = state.database(COUNTS)
    await database.run(add, "a", 1)
    assert database.start(counts).result() == {"a": 1}
    with pytest.raises(StorageError):
        await database.run(add, "a", 1)


def test_migrations_run_once_however_many_begin(state_place: str) -> None:
    rows = Migration("INSERT INTO counts (name, count) VALUES ('migrated', 1);")
    schema = Schema("counts", [FIRST, rows])

    def opened(_: int) -> dict[str, int]:
        state = open_state(state_place)
        try:
            return state.database(schema).run_blocking(counts)
        finally:
            state.close()

    first = open_state(state_place)
    first.database(COUNTS).run_blocking(add, "older", 0)
    first.close()
    with ThreadPoolExecutor(6) as pool:
        assert {str(answer) for answer in pool.map(opened, range(6))} == {
            "{'migrated': 1, 'older': 0}"
        }


def test_a_migration_that_fails_changes_nothing(state: State) -> None:
    wrong = Migration("INSERT INTO counts (name, count) VALUES ('a', 1); INSERT INTO nothing;")
    with pytest.raises(StorageError):
        state.database(Schema("counts", [FIRST, wrong])).run_blocking(counts)
    assert state.database(COUNTS).run_blocking(counts) == {}


def test_an_older_version_goes_on_beside_a_newer_one_unless_that_breaks_it(state: State) -> None:
    added = Migration("ALTER TABLE counts ADD COLUMN note TEXT;")
    state.database(Schema("counts", [FIRST, added])).run_blocking(add, "a", 1)
    assert state.database(COUNTS).run_blocking(counts) == {"a": 1}

    renamed = Migration("ALTER TABLE counts RENAME COLUMN count TO number_of;", breaks_older=True)
    state.database(Schema("counts", [FIRST, added, renamed])).run_blocking(lambda _: None)
    with pytest.raises(StorageError, match=r"counts have version 3 of a newer Attendant.* to 1"):
        state.database(COUNTS).run_blocking(counts)


SIZES = (0, 1, 2**20, 2**20 + 1, 5_000_000)


def write(files: FileStore, data: bytes, owner: str, name: str = "") -> None:
    with files.writing(owner, name) as path:
        path.write_bytes(data)


def read(files: FileStore, owner: str, name: str = "") -> bytes:
    with files.reading(owner, name) as path:
        return path.read_bytes()


@pytest.mark.parametrize("size", SIZES)
def test_a_file_comes_back_as_it_went(state: State, size: int) -> None:
    files, data = state.files("documents"), (b"0123456789" * (size // 10 + 1))[:size]
    write(files, data, "a", "source.txt")
    assert read(files, "a", "source.txt") == data
    assert files.num_bytes() == size
    assert state.files("batches").num_bytes() == 0


def test_a_file_is_replaced_whole_or_not_at_all(state: State) -> None:
    files = state.files("documents")
    write(files, bytes(3_000_000), "a", "x")
    with pytest.raises(ZeroDivisionError), files.writing("a", "x") as path:
        path.write_bytes(b"begun")
        raise ZeroDivisionError
    assert read(files, "a", "x") == bytes(3_000_000)
    write(files, b"new", "a", "x")
    assert read(files, "a", "x") == b"new"
    assert files.num_bytes() == 3


def test_files_are_removed_with_their_owner(state: State) -> None:
    files = state.files("documents")
    for owner, name in (("a", "x"), ("a", "y"), ("b", ""), ("c", "z")):
        write(files, b"1", owner, name)
    files.remove("a", "b", "unknown")
    assert [files.exists(owner) for owner in "abc"] == [False, False, True]
    for owner, name in (("a", "x"), ("b", ""), ("c", "unknown"), ("c", "")):
        with pytest.raises(FileNotFoundError):
            read(files, owner, name)


def test_only_old_files_are_abandoned(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    files = state.files("documents")
    write(files, b"1", "a", "x")
    write(files, b"1", "b", "x")
    files.remove_abandoned(["a"])
    assert files.exists("b")
    for module in ("files", "postgresql_files"):
        monkeypatch.setattr(f"serving.storage.{module}.ABANDONED_SECONDS", -1)
    files.remove_abandoned(["a"])
    assert [files.exists(owner) for owner in "ab"] == [True, False]


def test_where_there_is_no_room_the_place_is_named(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(StorageError, match="No space left on device"):
        write(state.files("documents"), b"1", "a")


def test_a_place_that_can_be_used_passes_the_check(state: State) -> None:
    state.check()

"""Databases of the server: whose they are, and that several may use one at once."""

import stat
import threading
from pathlib import Path

import pytest

from serving.errors import StorageError
from serving.storage.sqlite import default_state_dir, open_database

SCHEMA = "CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, count INTEGER) STRICT;"


def test_only_the_owner_reads_the_folder_and_rows_have_names(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"

    database = open_database(folder, "things", SCHEMA)
    database.execute("INSERT INTO counts VALUES ('a', 1)")

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (
        open_database(folder, "things", SCHEMA).execute("SELECT * FROM counts").fetchone()["count"]
    )


def test_two_writers_wait_for_each_other(tmp_path: Path) -> None:
    open_database(tmp_path, "things", SCHEMA).execute("INSERT INTO counts VALUES ('a', 0)")

    def count() -> None:
        database = open_database(tmp_path, "things", SCHEMA)
        for _ in range(50):
            database.execute("BEGIN IMMEDIATE")
            found = database.execute("SELECT count FROM counts").fetchone()["count"]
            database.execute("UPDATE counts SET count = ?", (found + 1,))
            database.execute("COMMIT")

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    database = open_database(tmp_path, "things", SCHEMA)
    assert database.execute("SELECT count FROM counts").fetchone()["count"] == 100


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(StorageError, match="/dev/null/state: Not a directory; name another"):
        open_database(Path("/dev/null/state"), "things", SCHEMA)


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib")
    assert default_state_dir() == Path("/var/lib/attendant")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert default_state_dir() == Path.home() / ".local/state/attendant"

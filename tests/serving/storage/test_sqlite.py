"""State in a folder: who may read it, and what is said where it cannot be made."""

import stat
from pathlib import Path

import pytest

from serving.errors import StorageError
from serving.storage.opening import default_state_folder, open_state
from tests.serving.storage.test_state import COUNTS, add, counts


def test_only_the_owner_reads_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    open_state(folder).database(COUNTS).run_blocking(add, "a", 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_server_that_stores_nothing_makes_no_folder(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    state.database(COUNTS)
    state.files("documents")
    assert not (tmp_path / "state").exists()


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(StorageError, match="/dev/null/state: Not a directory; name another"):
        open_state("/dev/null/state").check()


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "counts.sqlite3").write_bytes(b"nonsense" * 1000)
    with pytest.raises(StorageError, match="file is not a database"):
        open_state(tmp_path).database(COUNTS).run_blocking(counts)


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib")
    assert default_state_folder() == Path("/var/lib/attendant")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert default_state_folder() == Path.home() / ".local/state/attendant"

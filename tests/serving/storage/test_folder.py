"""State in a folder: whose it is, where it is by default, and what makes no folder."""

import stat
from contextlib import closing
from pathlib import Path

import pytest

from serving.errors import StorageError
from serving.storage.opening import default_state_folder, open_state
from tests.serving.storage.test_state import COUNTS, add


def test_only_the_owner_reads_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    with closing(open_state(folder)) as state:
        state.database(COUNTS).run_blocking(add, "a", 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with (
        closing(open_state("/dev/null/state")) as state,
        pytest.raises(StorageError, match="/dev/null/state: Not a directory; name another"),
    ):
        state.check()


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib")
    assert default_state_folder() == Path("/var/lib/attendant")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert default_state_folder() == Path.home() / ".local/state/attendant"


@pytest.mark.parametrize("place", ["mysql://u:hunter2@h/d", "postgresql+psycopg://u:hunter2@h/d"])
def test_other_urls_are_no_folders(place: str) -> None:
    with pytest.raises(StorageError, match="neither a folder nor a URL that begins") as caught:
        open_state(place)
    assert "hunter2" not in str(caught.value)

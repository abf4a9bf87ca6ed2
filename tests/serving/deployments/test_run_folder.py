"""One run's own folder: private, at a short path, and gone afterwards unless something failed."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from serving.deployments.run_folder import ray_folder, run_folder, write_token
from serving.errors import AttendantError

# What Ray puts beneath it, with the longest process id there is
_LONGEST = "ray/session_2026-11-22_19-18-58_340000_4194304/sockets/plasma_store"


def test_only_its_owner_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with run_folder() as folder:
        token = write_token(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert len(token.read_text()) == 64
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
@pytest.mark.parametrize("place", ["/dev/null/none", "relative", "", "long"])
def test_sockets_fit_wherever_temporary_files_should_go(
    variable: str, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("a" * 100)
    long.mkdir()
    monkeypatch.setenv(variable, str(long) if place == "long" else place)
    with run_folder() as folder:
        assert len(f"{folder}/{_LONGEST}") <= 107
    assert list(long.iterdir()) == []


def test_a_place_that_will_do_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    with run_folder() as folder:
        assert folder.parent == Path("/dev/shm")


def test_no_place_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.deployments.run_folder._places", lambda: ["/dev/null"])
    with pytest.raises(AttendantError, match="set TMPDIR to one"), run_folder():
        pass


def test_logs_of_a_failure_stay() -> None:
    with pytest.raises(AttendantError) as caught, run_folder() as folder:
        logs = ray_folder(folder) / "session_latest" / "logs"
        logs.mkdir(parents=True)
        raise AttendantError("no")
    assert str(caught.value) == f"no (Ray's logs: {logs})"
    with run_folder():  # not of the next run either
        assert logs.is_dir()
    shutil.rmtree(folder)


def test_a_failure_without_logs_leaves_nothing() -> None:
    with pytest.raises(AttendantError) as caught, run_folder() as folder:
        raise AttendantError("no")
    assert str(caught.value) == "no"
    assert not folder.exists()


WAITING = """
from serving.deployments.run_folder import run_folder
with run_folder() as folder:
    print(folder, flush=True)
    input()
"""


def test_a_run_removes_what_one_that_was_killed_has_left() -> None:
    """And nothing of one that still runs."""
    command = [sys.executable, "-c", WAITING]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        folder = Path(other.stdout.readline().strip())
        with run_folder():
            assert folder.exists()
        other.kill()
    with run_folder():
        assert not folder.exists()

"""Opens the databases in which the server keeps what has to survive it, and names their folder.

SQLite in WAL mode: replicas of one machine read and write the same file at once.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.errors import StorageError

_BUSY_TIMEOUT_SECONDS = 10.0


def default_state_dir() -> Path:
    """Return where a user's programs keep their state, as the XDG base directories have it."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "attendant"


def open_database(folder: Path, name: str, schema: str) -> sqlite3.Connection:
    """Open the database of that name in a folder that only its owner reads.

    Rows are read by name. A statement outside of BEGIN and COMMIT is a transaction of its own, and
    waits up to ten seconds for those of others. Any thread may use the connection, one at a time.
    Raises StorageError.

    schema: statements that make the tables where they are missing.
    """
    make_folder(folder)
    try:
        with _alone(folder):
            return _opened(folder / f"{name}.sqlite3", schema)
    except sqlite3.OperationalError as error:
        raise StorageError(folder, error) from error


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner reads, where there is none. Raises StorageError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(folder, error.strerror) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(folder, "cannot be written")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Open one database at a time: what turns a new one to WAL fails beside others, and does not
    wait for them.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path, schema: str) -> sqlite3.Connection:
    database = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    database.row_factory = sqlite3.Row
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.executescript(schema)
    return database

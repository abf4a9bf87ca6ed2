"""Open the state of a server, of either kind."""

import os
from pathlib import Path

from serving.errors import StorageError
from serving.storage.state import FolderState, State

_URL_PREFIXES = ("postgresql://", "postgres://")


def open_state(place: str | Path) -> State:
    """Return the state at a place: the path of a folder, or a URL `postgresql://...`.

    Raises StorageError for a URL that cannot be read.
    """
    if not is_url(place):
        return FolderState(Path(place))
    try:
        from serving.storage.postgresql_state import PostgresqlState
    except ModuleNotFoundError:
        reason = "needs psycopg: pip install 'attendant[postgresql]'"
        raise StorageError("state in PostgreSQL", reason, advice="") from None
    return PostgresqlState(str(place))


def is_url(place: str | Path) -> bool:
    """Return whether a place of state is a database, and no folder."""
    return str(place).startswith(_URL_PREFIXES)


def default_state_folder() -> Path:
    """Return the default folder for state, from the XDG base directories."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "attendant"

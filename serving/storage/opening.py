"""Open the state of a server, of either kind."""

import os
import re
from pathlib import Path
from urllib.parse import parse_qs

from serving.errors import StorageError
from serving.storage.state import FolderState, State

STATE_VARIABLE = "ATTENDANT_STATE"  # names the place where it is not to be in files, as in Secrets
_URL_PREFIXES = ("postgresql://", "postgres://")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def open_state(place: str | Path) -> State:
    """Return the state at a place: the path of a folder, or a URL `postgresql://...`.

    Raises StorageError for a URL that cannot be read.
    """
    if not str(place):
        raise StorageError("the state", "no place is named", advice="")
    if not is_url(place):
        if scheme := _SCHEME.match(str(place)):
            reason = "is neither a folder nor a URL that begins with postgresql://"
            raise StorageError(f"state in {scheme[0]}...", reason, advice="")
        return FolderState(Path(place))
    try:
        from serving.storage.postgresql_state import PostgresqlState
    except ModuleNotFoundError:
        reason = "needs psycopg: pip install 'attendant-server[postgresql]'"
        raise StorageError("state in PostgreSQL", reason, advice="") from None
    return PostgresqlState(str(place))


def is_url(place: str | Path) -> bool:
    """Return whether a place of state is a database, and no folder."""
    return str(place).startswith(_URL_PREFIXES)


def has_password(place: str) -> bool:
    """Return whether a place of state is a URL with a password in it."""
    if not is_url(place):
        return False
    server, _, query = place.partition("?")
    userinfo, at, _ = server.partition("://")[2].rpartition("@")
    return (at != "" and ":" in userinfo) or "password" in parse_qs(query)


def place_beneath(folder: Path, place: str) -> str:
    """Return a place whose path is relative to a folder."""
    return place if _SCHEME.match(place) else str(folder / place)


def default_state_folder() -> Path:
    """Return the default folder for state, from the XDG base directories."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "attendant"

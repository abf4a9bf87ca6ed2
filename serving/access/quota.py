"""Count what keys use: the characters of a month and the requests of a minute.

Both are counted in a database that all replicas share. Months and minutes are of UTC. A server
without keys counts nothing.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from serving.access.key_file import KeyEntry
from serving.access.key_ring import KeyRing
from serving.errors import QuotaExceeded, RateExceeded
from serving.storage.sqlite import DatabaseThread, transaction

_SECONDS_A_MINUTE = 60.0
_ROUNDING_SECONDS = 1e-3  # sums of times as floats of 1e9 seconds are that exact
_RESERVED_SECONDS = 3600.0  # if a replica was killed before it could release them
_SCHEMA = """
CREATE TABLE IF NOT EXISTS used (
    key TEXT, month TEXT, characters INTEGER NOT NULL, PRIMARY KEY (key, month)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, characters INTEGER NOT NULL, expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pace (key TEXT PRIMARY KEY, booked_until REAL NOT NULL)
    STRICT, WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """The characters that a key has used this month. limit: None without a limit."""

    characters: int
    limit: int | None
    start: datetime
    end: datetime


class Quota:
    """Counts the characters of answered requests, and refuses requests beyond a quota.

    The characters of a request are reserved while it runs, so that concurrent requests cannot
    exceed a quota together.
    """

    def __init__(
        self,
        folder: Path,
        ring: KeyRing | None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ring, self._now = ring, now
        self._database = DatabaseThread(folder, "quota", _SCHEMA)

    @asynccontextmanager
    async def reserve(self, key: str, characters: int) -> AsyncIterator[None]:
        """Reserve characters during the block, and bill them if it raises no error.

        Raises RateExceeded for too many requests in a minute, QuotaExceeded, and StorageError.
        """
        if (entry := self._entry(key)) is None:
            yield
            return
        reservation, now = uuid4().hex, self._now()
        try:
            if entry.characters_per_month is not None or entry.requests_per_minute is not None:
                await self._database.run(_admit, entry, characters, reservation, now)
            yield
        except BaseException:
            self._database.start(_release, reservation)
            raise
        await self._database.run(_bill, key, characters, reservation, now)

    async def usage(self, key: str) -> KeyUsage:
        """Return what a key has used this month; 0 on a server without keys."""
        now = self._now()
        start, end = _month(now)
        if (entry := self._entry(key)) is None:
            return KeyUsage(0, None, start, end)
        characters = await self._database.run(_num_used_characters, key, now)
        return KeyUsage(characters, entry.characters_per_month, start, end)

    def _entry(self, key: str) -> KeyEntry | None:
        return self._ring.entry(key) if self._ring else None


def _admit(
    database: sqlite3.Connection, entry: KeyEntry, characters: int, reservation: str, now: datetime
) -> None:
    """Reserve characters for a request. A request that is refused changes nothing."""
    with transaction(database):
        _keep_pace(database, entry, now)
        _check(database, entry, characters, now)
        expires_at = now.timestamp() + _RESERVED_SECONDS
        values = (reservation, entry.name, characters, expires_at)
        database.execute("INSERT INTO held VALUES (?, ?, ?, ?)", values)


def _keep_pace(database: sqlite3.Connection, entry: KeyEntry, now: datetime) -> None:
    """Raise RateExceeded if there were too many requests within a minute.

    This is the generic cell rate algorithm: a token bucket with one stored number. All requests of
    a minute may come at once.
    """
    if entry.requests_per_minute is None:
        return
    row = database.execute("SELECT * FROM pace WHERE key = ?", (entry.name,)).fetchone()
    start = max(row["booked_until"] if row else 0.0, now.timestamp())
    booked_until = start + _SECONDS_A_MINUTE / entry.requests_per_minute
    seconds = min(start, booked_until - _SECONDS_A_MINUTE) - now.timestamp()
    if seconds > _ROUNDING_SECONDS:
        rate = f"{entry.requests_per_minute:g} requests a minute"
        raise RateExceeded(entry.name, rate, seconds)
    database.execute("REPLACE INTO pace VALUES (?, ?)", (entry.name, booked_until))


def _check(database: sqlite3.Connection, entry: KeyEntry, characters: int, now: datetime) -> None:
    """Raise QuotaExceeded if used, reserved and new characters exceed the quota."""
    if entry.characters_per_month is None:
        return
    database.execute("DELETE FROM held WHERE expires_at < ?", (now.timestamp(),))
    query = "SELECT total(characters) FROM held WHERE key = ?"
    [num_reserved] = database.execute(query, (entry.name,)).fetchone()
    if (
        _num_used_characters(database, entry.name, now) + num_reserved + characters
        > entry.characters_per_month
    ):
        message = (
            f"key {entry.name} may use no more than {entry.characters_per_month} characters a month"
        )
        _, end = _month(now)
        raise QuotaExceeded(message, (end - now).total_seconds())


def _bill(
    database: sqlite3.Connection, key: str, characters: int, reservation: str, now: datetime
) -> None:
    """Count reserved characters as used."""
    with transaction(database):
        _release(database, reservation)
        _add(database, key, characters, now)


def _release(database: sqlite3.Connection, reservation: str) -> None:
    database.execute("DELETE FROM held WHERE id = ?", (reservation,))


def _add(database: sqlite3.Connection, key: str, characters: int, now: datetime) -> None:
    database.execute(
        "INSERT INTO used VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET characters = characters + excluded.characters",
        (key, _month_name(now), characters),
    )


def _num_used_characters(database: sqlite3.Connection, key: str, now: datetime) -> int:
    query = "SELECT characters FROM used WHERE key = ? AND month = ?"
    row = database.execute(query, (key, _month_name(now))).fetchone()
    return row["characters"] if row else 0


def _month_name(now: datetime) -> str:
    return f"{now:%Y-%m}"


def _month(now: datetime) -> tuple[datetime, datetime]:
    """Return when the month began, and when the next one begins."""
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = divmod(12 * now.year + now.month, 12)
    return start, start.replace(year=year, month=month + 1)

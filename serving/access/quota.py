"""Count what keys use: the characters of a month and the requests of a minute.

Both are counted in the state that all replicas share, by the clock of its database. Months and
minutes are of UTC. A server without keys counts nothing.

While the database is away, keys with these limits are refused: their limits are exact. Requests
that were admitted before are answered, and so are those of keys without limits; what they used is
written once the database is back.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from serving.access.bills import Bill, BillWriter, month_name
from serving.access.key_file import KeyEntry
from serving.access.key_ring import KeyRing
from serving.access.token_bucket import Clock
from serving.errors import QuotaExceeded, RateExceeded, StorageError
from serving.storage.database import Connection
from serving.storage.schema import Migration, Schema
from serving.storage.state import State

_SECONDS_A_MINUTE = 60.0
_ROUNDING_SECONDS = 1e-3  # sums of times as floats of 1e9 seconds are that exact
_WAIT_SECONDS = 3.0  # for a database that does not answer
# If a replica was killed before it could release what it had reserved.
_RESERVED_SECONDS = 600.0
_RENEW_SECONDS = 180.0
SCHEMA = Schema(
    "quota",
    [
        Migration("""
CREATE TABLE IF NOT EXISTS used (
    key TEXT, month TEXT, characters INTEGER NOT NULL, PRIMARY KEY (key, month)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, characters INTEGER NOT NULL, expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pace (key TEXT PRIMARY KEY, booked_until REAL NOT NULL)
    STRICT, WITHOUT ROWID;
""")
    ],
)
# One statement sees what another transaction bills either as reserved or as used, never as both.
_USE = """
SELECT
    (SELECT characters FROM used WHERE key = ? AND month = ?) AS used,
    (SELECT CAST(coalesce(sum(characters), 0) AS BIGINT) FROM held
        WHERE key = ? AND expires_at >= ?) AS reserved,
    (SELECT booked_until FROM pace WHERE key = ?) AS booked_until
"""


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """The characters that a key has used this month. limit: None without a limit."""

    characters: int
    limit: int | None
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class _Decision:
    """Whether a request is admitted.

    wait_seconds: until the next request of the key would be admitted, if there were too many.
    num_used: characters of the month that are billed already.
    """

    now: datetime
    num_used: int
    wait_seconds: float = 0.0
    exceeds_quota: bool = False


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that waits for its decision. reservation: None if it reserves nothing."""

    characters: int
    reservation: str | None
    decision: "asyncio.Future[_Decision]"


class Quota:
    """Counts the characters of answered requests, and refuses requests beyond a quota.

    The characters of a request are reserved while it runs, so that concurrent requests cannot
    exceed a quota together.
    """

    def __init__(
        self,
        state: State,
        ring: KeyRing | None,
        database_time: Callable[[Connection], float] = lambda connection: connection.time(),
        clock: Clock = time.monotonic,
    ) -> None:
        """clock: of refusals that are certain without the database."""
        self._place, self._ring = state.place, ring
        self._database_time, self._clock = database_time, clock
        self._database = state.database(SCHEMA)
        self._bills = BillWriter(self._database, database_time)
        self._waiting: defaultdict[KeyEntry, list[_Request]] = defaultdict(list)
        self._tasks: dict[KeyEntry, asyncio.Task[None]] = {}
        self._paced_until: dict[KeyEntry, float] = {}
        self._used: dict[KeyEntry, tuple[int, float]] = {}  # and when the month ends

    @asynccontextmanager
    async def reserve(self, key: str, characters: int) -> AsyncIterator[None]:
        """Reserve characters during the block, and bill them if it raises no error.

        Raises RateExceeded for too many requests in a minute, QuotaExceeded, and StorageError.
        """
        if (entry := self._entry(key)) is None:
            yield
            return
        if entry.characters_per_month is None:
            if entry.requests_per_minute is not None:
                await self._admit(entry, characters, None)
            yield
            self._bills.add(Bill(key, characters))
            return
        reservation = uuid4().hex
        month = await self._admit(entry, characters, reservation)
        renewal = asyncio.create_task(self._renew(reservation))
        try:
            yield
        except BaseException:
            self._bills.add(Bill(key, 0, month, reservation))
            raise
        finally:
            renewal.cancel()
        # The characters stay reserved until the bill is written, be it after the answer.
        bill = self._bills.add(Bill(key, characters, month, reservation))
        await asyncio.wait([bill], timeout=_WAIT_SECONDS)

    async def usage(self, key: str) -> KeyUsage:
        """Return what a key has used this month; 0 without keys. Raises StorageError."""
        if (entry := self._entry(key)) is None:
            return KeyUsage(0, None, *_month_of(datetime.now(UTC)))
        async with self._time_limit():
            await self._bills.wait_until_written()
            now, characters = await self._database.run(_read_usage, key, self._database_time)
        return KeyUsage(characters, entry.characters_per_month, *_month_of(now))

    def _entry(self, key: str) -> KeyEntry | None:
        return self._ring.entry(key) if self._ring else None

    async def _admit(self, entry: KeyEntry, characters: int, reservation: str | None) -> str:
        """Reserve characters, and return the month in which they are used. Raises RateExceeded,
        QuotaExceeded and StorageError.
        """
        self._refuse_without_asking(entry, characters)
        async with self._time_limit():
            decision = await self._ask(entry, characters, reservation)
        if decision.wait_seconds:
            self._paced_until[entry] = self._clock() + decision.wait_seconds
            raise _too_many_requests(entry, decision.wait_seconds)
        if decision.exceeds_quota:
            _, end = _month_of(decision.now)
            seconds = (end - decision.now).total_seconds()
            self._used[entry] = decision.num_used, self._clock() + seconds
            raise _too_many_characters(entry, seconds)
        return month_name(decision.now)

    def _refuse_without_asking(self, entry: KeyEntry, characters: int) -> None:
        """Raise what the database would answer for certain: a key that sends too many requests must
        not occupy it. What a month has used, and until when requests are booked, only grows.
        """
        now = self._clock()
        if (seconds := self._paced_until.get(entry, now) - now) > 0:
            raise _too_many_requests(entry, seconds)
        num_used, end = self._used.get(entry, (0, now))
        if end > now and num_used + characters > (entry.characters_per_month or 0):
            raise _too_many_characters(entry, end - now)

    async def _ask(self, entry: KeyEntry, characters: int, reservation: str | None) -> _Decision:
        decision = asyncio.get_running_loop().create_future()
        self._waiting[entry].append(_Request(characters, reservation, decision))
        if entry not in self._tasks:
            self._tasks[entry] = asyncio.create_task(self._decide_all(entry))
        try:
            return await decision
        except asyncio.CancelledError:
            if not decision.cancelled():  # it came in the same moment
                self._release(entry, reservation)
            raise

    async def _decide_all(self, entry: KeyEntry) -> None:
        """Ask the database about all requests of a key that wait, in one transaction: one for each
        would wait for those before it, each on a thread that other requests need.
        """
        try:
            while requests := self._waiting.pop(entry, None):
                requests = [request for request in requests if not request.decision.done()]
                await self._decide(entry, requests)
        finally:
            del self._tasks[entry]

    async def _decide(self, entry: KeyEntry, requests: "list[_Request]") -> None:
        asked = [(request.characters, request.reservation) for request in requests]
        try:
            decisions = await self._database.run(_admit, entry, asked, self._database_time)
        except StorageError as error:
            for request in requests:
                if not request.decision.done():
                    request.decision.set_exception(error)
            return
        for request, decision in zip(requests, decisions, strict=True):
            if not request.decision.done():
                request.decision.set_result(decision)
            else:  # its client has gone
                self._release(entry, request.reservation)

    def _release(self, entry: KeyEntry, reservation: str | None) -> None:
        if reservation is not None:
            self._bills.add(Bill(entry.name, 0, "", reservation))

    async def _renew(self, reservation: str) -> None:
        """Keep the reservation of a request that takes long."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with suppress(StorageError):
                await self._database.run(_renew, reservation, self._database_time)

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        """Raise StorageError if the block takes too long."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                yield
        except TimeoutError:
            raise StorageError(self._place, "does not answer", advice="") from None


def _admit(
    connection: Connection,
    entry: KeyEntry,
    requests: Sequence[tuple[int, str | None]],
    database_time: Callable[[Connection], float],
) -> list[_Decision]:
    """Reserve the characters of requests, one after the other. Those that are refused change
    nothing.
    """
    with connection.transaction(lock=f"quota of {entry.name}"):
        timestamp = database_time(connection)
        now = datetime.fromtimestamp(timestamp, UTC)
        values = (entry.name, month_name(now), entry.name, timestamp, entry.name)
        row = connection.row(_USE, values)
        assert row is not None
        num_used, num_reserved = row["used"] or 0, row["reserved"]
        booked_until, most = row["booked_until"] or 0.0, entry.characters_per_month
        reservations: list[tuple[str, str, int, float]] = []
        decisions: list[_Decision] = []
        for characters, reservation in requests:
            end, wait_seconds = _book(entry, booked_until, timestamp)
            if wait_seconds:
                decisions.append(_Decision(now, num_used, wait_seconds))
            elif most is not None and num_used + num_reserved + characters > most:
                decisions.append(_Decision(now, num_used, exceeds_quota=True))
            else:
                decisions.append(_Decision(now, num_used))
                booked_until = end
                if reservation is not None:
                    num_reserved += characters
                    expires_at = timestamp + _RESERVED_SECONDS
                    reservations.append((reservation, entry.name, characters, expires_at))
        if booked_until != (row["booked_until"] or 0.0):
            connection.execute(
                "INSERT INTO pace (key, booked_until) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET booked_until = excluded.booked_until",
                (entry.name, booked_until),
            )
        if reservations:
            connection.execute_many(
                "INSERT INTO held (id, key, characters, expires_at) VALUES (?, ?, ?, ?)",
                reservations,
            )
    return decisions


def _book(entry: KeyEntry, booked_until: float, now: float) -> tuple[float, float]:
    """Return until when requests are booked with one more, and how long it has to wait; 0 if it is
    admitted.

    This is the generic cell rate algorithm: a token bucket with one stored number. All requests of
    a minute may come at once.
    """
    if entry.requests_per_minute is None:
        return booked_until, 0.0
    start = max(booked_until, now)
    end = start + _SECONDS_A_MINUTE / entry.requests_per_minute
    seconds = min(start, end - _SECONDS_A_MINUTE) - now
    return end, seconds if seconds > _ROUNDING_SECONDS else 0.0


def _renew(
    connection: Connection, reservation: str, database_time: Callable[[Connection], float]
) -> None:
    connection.execute(
        "UPDATE held SET expires_at = ? WHERE id = ?",
        (database_time(connection) + _RESERVED_SECONDS, reservation),
    )


def _read_usage(
    connection: Connection, key: str, database_time: Callable[[Connection], float]
) -> tuple[datetime, int]:
    """Return the time, and the characters of its month."""
    now = datetime.fromtimestamp(database_time(connection), UTC)
    query = "SELECT characters FROM used WHERE key = ? AND month = ?"
    row = connection.row(query, (key, month_name(now)))
    return now, row["characters"] if row else 0


def _too_many_requests(entry: KeyEntry, seconds: float) -> RateExceeded:
    return RateExceeded(entry.name, f"{entry.requests_per_minute:g} requests a minute", seconds)


def _too_many_characters(entry: KeyEntry, seconds: float) -> QuotaExceeded:
    message = (
        f"key {entry.name} may use no more than {entry.characters_per_month} characters a month"
    )
    return QuotaExceeded(message, seconds)


def _month_of(now: datetime) -> tuple[datetime, datetime]:
    """Return when the month began, and when the next one begins."""
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = divmod(12 * now.year + now.month, 12)
    return start, start.replace(year=year, month=month + 1)

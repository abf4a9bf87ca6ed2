"""Hold the rates of keys over all replicas: the requests of a second and the tokens of a minute.

The levels of a key's buckets are in the state that all replicas share, by the clock of its
database. The replica's own buckets are brought down to them after each question: other replicas
only take. So what its own buckets refuse is refused without a question, and a key that sends too
many requests costs nothing but that. All requests of a key that wait in a replica are one question.

While the database is away, each replica's own buckets decide alone.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from serving.access.key_file import KeyEntry
from serving.access.key_ring import Key
from serving.access.token_bucket import Clock, Rate, requests_rate, tokens_rate
from serving.errors import StorageError
from serving.storage.database import Connection, Row
from serving.storage.schema import Migration, Schema
from serving.storage.state import State

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 1.0  # for a database that does not answer
_AWAY_SECONDS = 2.0  # until it is asked again
SCHEMA = Schema(
    "rates",
    [
        Migration("""
CREATE TABLE IF NOT EXISTS rates (
    key TEXT PRIMARY KEY, requests REAL, tokens REAL, filled_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
""")
    ],
)


@dataclass(frozen=True, slots=True)
class _Levels:
    """The levels of a key's buckets, after so many requests were admitted; None without a limit."""

    num_admitted: int
    requests: float | None
    tokens: float | None


@dataclass(slots=True)
class _Demand:
    """What a key needs of the shared buckets.

    waiting: of each request a future, whether it is admitted; None if the database is away.
    num_tokens: of requests that have ended.
    """

    waiting: list[asyncio.Future[bool | None]] = field(default_factory=list)
    num_tokens: int = 0

    def __bool__(self) -> bool:
        return bool(self.waiting or self.num_tokens)


class Rates:
    """Admits the requests of keys."""

    def __init__(
        self,
        state: State,
        database_time: Callable[[Connection], float] = lambda connection: connection.time(),
        clock: Clock = time.monotonic,
    ) -> None:
        self._database = state.database(SCHEMA)
        self._database_time, self._clock = database_time, clock
        self._away_until = clock()
        self._demands: dict[Key, _Demand] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    async def admit(self, key: Key) -> None:
        """Count one more request. Raises RateExceeded."""
        while True:
            if (refusal := key.refusal()) is not None:
                raise refusal
            if key.requests is None and key.tokens is None:
                return
            is_admitted = await self._ask(key)
            if is_admitted:
                return
            if is_admitted is None and key.refusal() is None:
                if key.requests is not None:
                    key.requests.take(1)
                return

    def charge(self, key: Key, num_tokens: int) -> None:
        """Count the tokens of a request that has ended."""
        if key.tokens is None or not num_tokens:
            return
        key.tokens.take(num_tokens)
        if not self._is_away():
            self._demand_of(key).num_tokens += num_tokens

    async def _ask(self, key: Key) -> bool | None:
        """Return whether the shared buckets admit a request; None if the database is away."""
        if self._is_away():
            return None
        is_admitted = asyncio.get_running_loop().create_future()
        self._demand_of(key).waiting.append(is_admitted)
        return await is_admitted

    def _is_away(self) -> bool:
        return self._clock() < self._away_until

    def _demand_of(self, key: Key) -> _Demand:
        """Return the demand of a key that is going to be taken from the shared buckets."""
        demand = self._demands.setdefault(key, _Demand())
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._take_all(key))
        return demand

    async def _take_all(self, key: Key) -> None:
        try:
            while demand := self._demands.pop(key, None):
                await self._take(key, demand)
        finally:
            del self._tasks[key]

    async def _take(self, key: Key, demand: _Demand) -> None:
        waiting = [request for request in demand.waiting if not request.done()]
        levels = None
        try:
            levels = await self._levels_after(key.entry, len(waiting), demand.num_tokens)
            if levels is not None:
                _lower(key, levels)
        finally:
            for number, is_admitted in enumerate(waiting):
                if not is_admitted.done():  # its client may have gone
                    answer = None if levels is None else number < levels.num_admitted
                    is_admitted.set_result(answer)

    async def _levels_after(
        self, entry: KeyEntry, num_requests: int, num_tokens: int
    ) -> _Levels | None:
        """Take requests and tokens from the shared buckets; return None if the database is away."""
        arguments = (entry, num_requests, num_tokens, self._database_time)
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                return await asyncio.wrap_future(self._database.start(_take, *arguments))
        except (StorageError, TimeoutError) as error:
            if not self._is_away():
                reason = str(error) or "its database does not answer"
                logger.warning("rates are held by each replica alone for now: %s", reason)
            self._away_until = self._clock() + _AWAY_SECONDS
            return None


def _lower(key: Key, levels: _Levels) -> None:
    """Lower the replica's own buckets to the shared ones."""
    if key.requests is not None and levels.requests is not None:
        key.requests.lower_to(levels.requests)
    if key.tokens is not None and levels.tokens is not None:
        key.tokens.lower_to(levels.tokens)


def _take(
    connection: Connection,
    entry: KeyEntry,
    num_requests: int,
    num_tokens: int,
    database_time: Callable[[Connection], float],
) -> _Levels:
    """Take the tokens, and as many of the requests as there is room for."""
    with connection.transaction(lock=f"rates of {entry.name}", is_durable=False):
        now = database_time(connection)
        query = "SELECT requests, tokens, filled_at FROM rates WHERE key = ?"
        new: Row = {"requests": None, "tokens": None, "filled_at": now}
        row = connection.row(query, (entry.name,)) or new
        seconds = now - row["filled_at"]
        requests = tokens = None
        num_admitted = num_requests
        if entry.tokens_per_minute is not None:
            rate = tokens_rate(entry.tokens_per_minute)
            tokens = _fill(rate, row["tokens"], seconds) - num_tokens
            num_admitted = num_requests if tokens >= min(1, rate.capacity) else 0
        if entry.requests_per_second is not None:
            rate = requests_rate(entry.requests_per_second)
            requests = _fill(rate, row["requests"], seconds)
            num_admitted = min(num_admitted, max(0, int(requests)))
            requests -= num_admitted
        connection.execute(
            "INSERT INTO rates (key, requests, tokens, filled_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET requests = excluded.requests,"
            " tokens = excluded.tokens, filled_at = excluded.filled_at",
            (entry.name, requests, tokens, now),
        )
    return _Levels(num_admitted, requests, tokens)


def _fill(rate: Rate, level: float | None, seconds: float) -> float:
    """Return the level of a bucket after some seconds; a new one is full."""
    return rate.capacity if level is None else rate.fill(level, seconds)

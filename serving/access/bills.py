"""Write what requests have used into the database, again and again until it has it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from serving.errors import StorageError
from serving.storage.database import Connection, Database

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_MAX_BILLS = 500  # in one transaction
# Of replicas that were killed. A request may be billed some time after its reservation expired.
_DELETE_AFTER_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Bill:
    """What a request has used.

    characters: 0 of a request that failed.
    month: in which they were reserved; empty is the current one.
    reservation: that ends with the bill; None without one. It is billed once.
    """

    key: str
    characters: int
    month: str = ""
    reservation: str | None = None


class BillWriter:
    """Writes bills in the order in which they came, those that wait in one transaction."""

    def __init__(self, database: Database, database_time: Callable[[Connection], float]) -> None:
        self._database, self._database_time = database, database_time
        self._bills: dict[asyncio.Future[None], Bill] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, bill: Bill) -> "asyncio.Future[None]":
        """Return a future that is done once the bill is written."""
        written = asyncio.get_running_loop().create_future()
        self._bills[written] = bill
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())
        return written

    async def wait_until_written(self) -> None:
        """Return once all bills are written that have been added so far."""
        if self._bills:
            await asyncio.wait([*self._bills])

    async def _write_all(self) -> None:
        while self._bills:
            bills = dict(list(self._bills.items())[:_MAX_BILLS])
            try:
                await self._database.run(_write, [*bills.values()], self._database_time)
            except StorageError as error:
                logger.warning("what keys used is written later: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            for written in bills:
                del self._bills[written]
                if not written.done():  # whoever waited may have gone
                    written.set_result(None)


def _write(
    connection: Connection, bills: Sequence[Bill], database_time: Callable[[Connection], float]
) -> None:
    used: Counter[tuple[str, str]] = Counter()
    with connection.transaction():
        now = database_time(connection)
        this_month = month_name(datetime.fromtimestamp(now, UTC))
        reservations = {bill.reservation for bill in bills if bill.reservation is not None}
        ended = _end_reservations(connection, sorted(reservations), now)
        for bill in bills:
            if bill.characters and (bill.reservation is None or bill.reservation in ended):
                used[bill.key, bill.month or this_month] += bill.characters
        # In the same order in all processes: else two of them may wait for each other.
        for (key, month), characters in sorted(used.items()):
            connection.execute(
                "INSERT INTO used (key, month, characters) VALUES (?, ?, ?)"
                " ON CONFLICT (key, month)"
                " DO UPDATE SET characters = used.characters + excluded.characters",
                (key, month, characters),
            )


def _end_reservations(connection: Connection, ids: Sequence[str], now: float) -> set[str]:
    """Delete reservations, and return those that were there."""
    if not ids:
        return set()
    marks = ", ".join("?" * len(ids))
    rows = connection.rows(
        f"DELETE FROM held WHERE id IN ({marks}) OR expires_at < ? RETURNING id",
        (*ids, now - _DELETE_AFTER_SECONDS),
    )
    return {row["id"] for row in rows}


def month_name(time: datetime) -> str:
    return f"{time:%Y-%m}"

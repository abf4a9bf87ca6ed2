"""Share between replicas how much work each key has received, so that keys get equal parts of all.

Each replica orders the requests of keys by the work that they have received in it
(`engine/scheduling/fair_queue.py`). A key whose requests are in fewer replicas than those of
another would get less. So each replica writes every second what each key has received of each
model, and charges the accounts of its queues with what others have written.

A replica that cannot ask the database shares its own work alone. What happens meanwhile is not
charged later.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from uuid import uuid4

from serving.errors import StorageError
from serving.storage.database import Connection
from serving.storage.schema import Migration, Schema
from serving.storage.state import State

logger = logging.getLogger(__name__)

_REPORT_SECONDS = 1.0
_WAIT_SECONDS = 2.0  # for a database that does not answer
_IDLE_SECONDS = 60.0  # after which a replica reports nothing, and its rows are deleted
SCHEMA = Schema(
    "fair_use",
    [
        Migration("""
CREATE TABLE IF NOT EXISTS received (
    replica TEXT, model TEXT, key TEXT, work INTEGER NOT NULL, reported_at REAL NOT NULL,
    PRIMARY KEY (replica, model, key)
) STRICT, WITHOUT ROWID;
""")
    ],
)

ModelAndKey = tuple[str, str]
Names = tuple[str, str, str]  # of a replica, a model and a key


class Engine(Protocol):
    """What orders the requests of one model by key."""

    def taken_work(self) -> Mapping[str, int]:
        """Return all work that each key has ever received, in tokens."""

    def charge(self, account: str, work: int) -> None:
        """Charge a key with work that it has received elsewhere."""


class FairUse:
    """The reports of one replica.

    engines: returns the engines of the models that it serves.
    """

    def __init__(self, state: State, engines: Callable[[], Mapping[str, Engine]]) -> None:
        self._database, self._engines = state.database(SCHEMA), engines
        self._replica = uuid4().hex
        self._received: Counter[ModelAndKey] = Counter()
        self._reported: Counter[ModelAndKey] = Counter()
        self._others: dict[Names, int] | None = None  # None if the last report had no answer
        self._num_idle_reports = 0

    async def run(self) -> None:
        """Report every second until the task is cancelled."""
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            try:
                async with asyncio.timeout(_WAIT_SECONDS):
                    await self.report()
            except (StorageError, TimeoutError) as error:
                if self._others is not None:
                    reason = str(error) or "the database does not answer"
                    logger.warning("keys share each replica alone for now: %s", reason)
                self._others = None

    async def report(self) -> None:
        """Write what keys have received here, and charge what they have received elsewhere.

        Raises StorageError.
        """
        engines = self._engines()
        received = Counter(
            {
                (model, key): work
                for model, engine in engines.items()
                for key, work in engine.taken_work().items()
                if key
            }
        )
        new, self._received = received - self._received, received
        self._num_idle_reports = 0 if new else self._num_idle_reports + 1
        if self._num_idle_reports * _REPORT_SECONDS >= _IDLE_SECONDS or not received:
            self._others = None
            return
        if self._others is None:
            new.clear()  # nobody heard of it when it was received
        reported = self._reported + new
        changed = [(self._replica, *names, reported[names]) for names in sorted(new)]
        others = await self._database.run(_exchange, self._replica, changed)
        self._reported = reported
        before, self._others = self._others, others
        if before is None:
            return
        for (replica, model, key), work in others.items():
            # What is new to this replica may have been received before it began to ask.
            since = work - before.get((replica, model, key), work)
            if since > 0 and model in engines:
                engines[model].charge(key, since)


def _exchange(
    connection: Connection, replica: str, changed: Sequence[tuple[str, str, str, int]]
) -> dict[Names, int]:
    """Write rows of a replica; return the work by replica, model and key of all others."""
    with connection.transaction(is_durable=False):
        now = connection.time()
        connection.execute_many(
            "INSERT INTO received (replica, model, key, work, reported_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (replica, model, key)"
            " DO UPDATE SET work = excluded.work, reported_at = excluded.reported_at",
            [(*row, now) for row in changed],
        )
        connection.execute("DELETE FROM received WHERE reported_at < ?", (now - _IDLE_SECONDS,))
        query = "SELECT replica, model, key, work FROM received WHERE replica <> ?"
        rows = connection.rows(query, (replica,))
    return {(row["replica"], row["model"], row["key"]): row["work"] for row in rows}

"""Keeps files and batches in a database: what was asked for, and what is done of it.

A worker has a batch for as long as its lease, which it renews. When a lease has run out, its worker
is gone, and another goes on: a line that has a result is not answered again.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from serving.storage import transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, purpose TEXT NOT NULL, name TEXT NOT NULL,
    num_bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, state TEXT NOT NULL, record TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
    worker TEXT, leased_until REAL NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    batch TEXT NOT NULL, number INTEGER NOT NULL, is_error INTEGER NOT NULL, line TEXT NOT NULL,
    PRIMARY KEY (batch, number)
) STRICT, WITHOUT ROWID;
"""


class State(StrEnum):
    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


OPEN = (State.VALIDATING, State.IN_PROGRESS, State.FINALIZING, State.CANCELLING)


@dataclass(frozen=True, slots=True)
class FileRecord:
    id: str
    owner: str
    purpose: str
    name: str
    num_bytes: int
    created_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Holds what is known of a batch.

    times: when it came into each state. problems: why it failed, each with its line.
    num_lines: 0 until they have been checked. num_done, num_failed: of them.
    """

    id: str
    owner: str
    state: State
    endpoint: str
    input_file: str
    window: str
    created_at: int
    expires_at: int
    metadata: dict[str, str] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)
    num_lines: int = 0
    num_done: int = 0
    num_failed: int = 0
    output_file: str | None = None
    error_file: str | None = None

    def entering(self, state: State, now: float, **changes: Any) -> "BatchRecord":
        return replace(self, state=state, times=self.times | {state: int(now)}, **changes)


def add_file(database: sqlite3.Connection, record: FileRecord) -> None:
    values = tuple(asdict(record).values())
    database.execute("REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def file(database: sqlite3.Connection, file_id: str, owner: str, now: float) -> FileRecord | None:
    query = "SELECT * FROM files WHERE id = ? AND owner = ? AND expires_at > ?"
    row = database.execute(query, (file_id, owner, now)).fetchone()
    return FileRecord(**dict(row)) if row else None


def files(database: sqlite3.Connection, owner: str, now: float) -> list[FileRecord]:
    """List the files of an owner, the newest first."""
    query = (
        "SELECT * FROM files WHERE owner = ? AND expires_at > ? ORDER BY created_at DESC, id DESC"
    )
    return [FileRecord(**dict(row)) for row in database.execute(query, (owner, now))]


def remove_files(database: sqlite3.Connection, ids: Iterable[str]) -> None:
    database.executemany("DELETE FROM files WHERE id = ?", [(each,) for each in ids])


def file_ids(database: sqlite3.Connection, expired_at: float | None = None) -> list[str]:
    query = "SELECT id FROM files WHERE ? IS NULL OR expires_at < ?"
    return [row["id"] for row in database.execute(query, (expired_at, expired_at))]


def num_bytes(database: sqlite3.Connection) -> int:
    [found] = database.execute("SELECT coalesce(sum(num_bytes), 0) FROM files").fetchone()
    return int(found)


def add_batch(database: sqlite3.Connection, batch: BatchRecord) -> None:
    values = (batch.id, batch.owner, batch.state, _text(batch), batch.created_at, batch.expires_at)
    database.execute(
        "INSERT INTO batches (id, owner, state, record, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        values,
    )


def batch(database: sqlite3.Connection, batch_id: str, owner: str) -> BatchRecord | None:
    query = "SELECT record FROM batches WHERE id = ? AND owner = ?"
    row = database.execute(query, (batch_id, owner)).fetchone()
    return _counted(database, row) if row else None


def batches(database: sqlite3.Connection, owner: str) -> list[BatchRecord]:
    """List the batches of an owner, the newest first."""
    query = "SELECT record FROM batches WHERE owner = ? ORDER BY created_at DESC, id DESC"
    return [_counted(database, row) for row in database.execute(query, (owner,)).fetchall()]


def cancel(
    database: sqlite3.Connection, batch_id: str, owner: str, now: float
) -> BatchRecord | None:
    """Have a batch end, if it has not; its worker sees it soon."""
    with transaction(database):
        found = batch(database, batch_id, owner)
        if found and found.state in (State.VALIDATING, State.IN_PROGRESS):
            found = found.entering(State.CANCELLING, now)
            _write(database, found)
    return found


def claim(
    database: sqlite3.Connection, worker: str, now: float, lease_seconds: float
) -> BatchRecord | None:
    """Give a worker the oldest batch that waits, or whose worker is gone."""
    if _waiting(database, now) is None:  # which is so nearly always, and keeps nobody from writing
        return None
    with transaction(database):
        if (row := _waiting(database, now)) is None:
            return None
        change = "UPDATE batches SET worker = ?, leased_until = ? WHERE id = ?"
        database.execute(change, (worker, now + lease_seconds, row["id"]))
        return _counted(database, row)


def renew(database: sqlite3.Connection, batch_id: str, worker: str, until: float) -> State | None:
    """Prolong a lease; return the state of the batch, None if it is no longer the worker's."""
    database.execute(
        "UPDATE batches SET leased_until = ? WHERE id = ? AND worker = ?", (until, batch_id, worker)
    )
    query = "SELECT state FROM batches WHERE id = ? AND worker = ?"
    row = database.execute(query, (batch_id, worker)).fetchone()
    return State(row["state"]) if row else None


def give_back(database: sqlite3.Connection, batch_id: str, worker: str) -> None:
    database.execute(
        "UPDATE batches SET worker = NULL, leased_until = 0 WHERE id = ? AND worker = ?",
        (batch_id, worker),
    )


def enter(
    database: sqlite3.Connection,
    batch: BatchRecord,
    worker: str,
    results: Sequence[FileRecord] = (),
) -> bool:
    """Put a batch into its new state together with its files, unless it is no longer the worker's,
    or was cancelled meanwhile; return whether it was.
    """
    with transaction(database):
        query = "SELECT state FROM batches WHERE id = ? AND worker = ?"
        row = database.execute(query, (batch.id, worker)).fetchone()
        is_cancelled = (
            row and row["state"] == State.CANCELLING and State.CANCELLING not in batch.times
        )
        if row is None or is_cancelled:
            return False
        for record in results:
            add_file(database, record)
        _write(database, batch)
    return True


def save(
    database: sqlite3.Connection, batch_id: str, worker: str, number: int, is_error: bool, line: str
) -> None:
    """Keep the result of a line, unless the batch is no longer the worker's."""
    database.execute(
        "INSERT OR IGNORE INTO results SELECT id, ?, ?, ? FROM batches WHERE id = ? AND worker = ?",
        (number, int(is_error), line, batch_id, worker),
    )


def done(database: sqlite3.Connection, batch_id: str) -> set[int]:
    query = "SELECT number FROM results WHERE batch = ?"
    return {row["number"] for row in database.execute(query, (batch_id,))}


def lines(database: sqlite3.Connection, batch_id: str, is_error: bool) -> list[str]:
    """List results in the order of their lines."""
    query = "SELECT line FROM results WHERE batch = ? AND is_error = ? ORDER BY number"
    return [row["line"] for row in database.execute(query, (batch_id, int(is_error)))]


def remove_batches(database: sqlite3.Connection, created_before: float) -> None:
    """Forget batches that have ended long ago."""
    with transaction(database):
        query = "SELECT id FROM batches WHERE created_at < ? AND expires_at < ?"
        old = [(row["id"],) for row in database.execute(query, (created_before, created_before))]
        database.executemany("DELETE FROM results WHERE batch = ?", old)
        database.executemany("DELETE FROM batches WHERE id = ?", old)


def _waiting(database: sqlite3.Connection, now: float) -> sqlite3.Row | None:
    marks = ", ".join("?" * len(OPEN))
    query = (
        f"SELECT id, record FROM batches WHERE state IN ({marks})"
        " AND (worker IS NULL OR leased_until < ?) ORDER BY created_at, id LIMIT 1"
    )
    row: sqlite3.Row | None = database.execute(query, (*OPEN, now)).fetchone()
    return row


def _write(database: sqlite3.Connection, batch: BatchRecord) -> None:
    change = "UPDATE batches SET state = ?, record = ? WHERE id = ?"
    database.execute(change, (batch.state, _text(batch), batch.id))


def _text(batch: BatchRecord) -> str:
    return json.dumps(asdict(batch))


def _counted(database: sqlite3.Connection, row: sqlite3.Row) -> BatchRecord:
    values = json.loads(row["record"])
    query = "SELECT count(*), coalesce(sum(is_error), 0) FROM results WHERE batch = ?"
    [num_all, num_failed] = database.execute(query, (values["id"],)).fetchone()
    counts = {"num_done": num_all - num_failed, "num_failed": num_failed}
    return BatchRecord(**values | counts | {"state": State(values["state"])})

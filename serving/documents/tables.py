"""Keeps documents in a database: what is asked for, how far each is, and who is at work on it.

A worker has a document for as long as its lease, which it renews. When a lease has run out, its
worker is gone, and another takes the document with all that was translated of it.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from serving.storage import transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    id TEXT PRIMARY KEY, key_hash TEXT NOT NULL, wanted TEXT NOT NULL,
    num_characters INTEGER NOT NULL, num_fragments INTEGER NOT NULL,
    state TEXT NOT NULL, error TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL, expires_at REAL NOT NULL,
    worker TEXT, leased_until REAL NOT NULL DEFAULT 0,
    begun_at REAL NOT NULL DEFAULT 0, begun_with INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS translations (
    document TEXT NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (document, number)
) STRICT, WITHOUT ROWID;
"""


class State(StrEnum):
    QUEUED = "queued"
    TRANSLATING = "translating"
    DONE = "done"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Says what is asked of a document.

    name: of its file. source: the model's, or the one that was found out.
    model: None is the first that translates between the languages.
    owner: the name of the key that was shown; empty where the server asks for none.
    glossary: terms with their translations.
    """

    name: str
    source: str
    target: str
    model: str | None = None
    owner: str = ""
    glossary: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Holds what is known of a document. num_done: of its fragments."""

    id: str
    key_hash: str
    wanted: Wanted
    num_characters: int
    num_fragments: int
    num_done: int
    state: State
    error: str
    created_at: float
    expires_at: float
    begun_at: float
    begun_with: int

    def seconds_remaining(self, now: float) -> float | None:
        """Estimate from what its worker has done so far; None if that is nothing yet."""
        num_own = self.num_done - self.begun_with
        if self.state is not State.TRANSLATING or num_own <= 0:
            return None
        return (now - self.begun_at) / num_own * (self.num_fragments - self.num_done)


def add(database: sqlite3.Connection, record: Record) -> None:
    values = (
        *(record.id, record.key_hash, json.dumps(asdict(record.wanted))),
        *(record.num_characters, record.num_fragments, record.state),
        *(record.created_at, record.expires_at),
    )
    database.execute(
        "INSERT INTO documents (id, key_hash, wanted, num_characters, num_fragments, state,"
        " created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )


def found(database: sqlite3.Connection, document: str) -> Record | None:
    row = database.execute("SELECT * FROM documents WHERE id = ?", (document,)).fetchone()
    if row is None:
        return None
    query = "SELECT count(*) FROM translations WHERE document = ?"
    [num_done] = database.execute(query, (document,)).fetchone()
    own: dict[str, Any] = {
        "wanted": Wanted(**json.loads(row["wanted"])),
        "state": State(row["state"]),
        "num_done": num_done,
    }
    names = [each.name for each in fields(Record)]
    return Record(**{name: own[name] if name in own else row[name] for name in names})


def claim(
    database: sqlite3.Connection, worker: str, now: float, lease_seconds: float
) -> Record | None:
    """Give a worker the oldest document that waits, or whose worker is gone."""
    if _waiting(database, now) is None:  # which is so nearly always, and keeps nobody from writing
        return None
    with transaction(database):
        if (document := _waiting(database, now)) is None:
            return None
        database.execute(
            "UPDATE documents SET state = 'translating', worker = ?, leased_until = ?,"
            " begun_at = ?, begun_with = (SELECT count(*) FROM translations WHERE document = id)"
            " WHERE id = ?",
            (worker, now + lease_seconds, now, document),
        )
        return found(database, document)


def _waiting(database: sqlite3.Connection, now: float) -> str | None:
    row = database.execute(
        "SELECT id FROM documents WHERE state = 'queued'"
        " OR (state = 'translating' AND leased_until < ?) ORDER BY created_at LIMIT 1",
        (now,),
    ).fetchone()
    return row["id"] if row else None


def renew(database: sqlite3.Connection, document: str, worker: str, until: float) -> bool:
    """Prolong a lease; return whether the document is still the worker's."""
    changed = database.execute(
        "UPDATE documents SET leased_until = ? WHERE id = ? AND worker = ?",
        (until, document, worker),
    )
    return changed.rowcount > 0


def translations(database: sqlite3.Connection, document: str) -> dict[int, str]:
    query = "SELECT number, text FROM translations WHERE document = ?"
    return {row["number"]: row["text"] for row in database.execute(query, (document,))}


def save(
    database: sqlite3.Connection, document: str, worker: str, texts: Mapping[int, str]
) -> None:
    """Keep translations, unless the document is no longer the worker's."""
    with transaction(database):
        query = "SELECT 1 FROM documents WHERE id = ? AND worker = ?"
        if database.execute(query, (document, worker)).fetchone():
            rows = [(document, number, text) for number, text in texts.items()]
            database.executemany("REPLACE INTO translations VALUES (?, ?, ?)", rows)


def end(
    database: sqlite3.Connection, document: str, worker: str, state: State, error: str = ""
) -> None:
    """Say how a document ended, or, with state queued, that the worker gives it back."""
    database.execute(
        "UPDATE documents SET state = ?, error = ?, worker = NULL WHERE id = ? AND worker = ?",
        (state, error, document, worker),
    )


def remove(database: sqlite3.Connection, document: str) -> None:
    with transaction(database):
        database.execute("DELETE FROM translations WHERE document = ?", (document,))
        database.execute("DELETE FROM documents WHERE id = ?", (document,))


def ids(database: sqlite3.Connection, expired_at: float | None = None) -> list[str]:
    """List all documents, or those that have expired at a time."""
    query = "SELECT id FROM documents WHERE ? IS NULL OR expires_at < ?"
    return [row["id"] for row in database.execute(query, (expired_at, expired_at))]

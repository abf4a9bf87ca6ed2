"""Store the translation memories of each key, and find the unit that is most like a segment.

A memory has one source language and several target languages. It belongs to the key that made it;
without keys it belongs to everybody. The memories of other keys are invisible.
"""

import asyncio
import json
import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from pathlib import Path
from secrets import token_urlsafe
from uuid import uuid4

from serving.errors import QuotaExceeded, TranslationMemoryNotFound
from serving.pipelines.translation.memory import MemoryMatch, MemoryUse
from serving.storage.sqlite import DatabaseThread, transaction
from serving.text.languages import match_codes
from serving.translation_memory.lookup import best_match
from serving.translation_memory.similarity import word_ids
from serving.translation_memory.tmx import MemorySegment, TranslationUnit

MAX_MEMORIES = 1000  # of one key
UPLOAD_HOURS = 24  # the file of an import must come within
# Of one transaction: half a second, for which nothing else is written (183,041 units took 41 s).
_BATCH_UNITS = 2_000
PAGE_UNITS = 500

SCHEMA = """
PRAGMA foreign_keys = ON;
PRAGMA cache_size = -65536; -- KiB: an import writes all over the index of words
CREATE TABLE IF NOT EXISTS memories (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
    created TEXT NOT NULL, updated TEXT NOT NULL, secret TEXT NOT NULL,
    import_job TEXT NOT NULL UNIQUE, state TEXT NOT NULL, source TEXT NOT NULL DEFAULT '',
    targets TEXT NOT NULL DEFAULT '[]', num_units INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS units (
    number INTEGER PRIMARY KEY,
    memory INTEGER NOT NULL REFERENCES memories,
    source TEXT NOT NULL, source_xml TEXT, words BLOB NOT NULL, created TEXT NOT NULL,
    UNIQUE (memory, source)
) STRICT;
CREATE TABLE IF NOT EXISTS targets (
    unit INTEGER NOT NULL REFERENCES units ON DELETE CASCADE,
    language TEXT NOT NULL, target TEXT NOT NULL, target_xml TEXT,
    PRIMARY KEY (unit, language)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS words (
    memory INTEGER NOT NULL, word INTEGER NOT NULL, num_words INTEGER NOT NULL,
    unit INTEGER NOT NULL,
    PRIMARY KEY (memory, word, num_words, unit)
) STRICT, WITHOUT ROWID;
"""
_SELECT_UNITS = """
SELECT * FROM units WHERE memory = ? AND number > ? AND (
    ? = '' OR instr(folded(source), ?)
    OR EXISTS (SELECT 1 FROM targets WHERE unit = number AND instr(folded(target), ?))
) ORDER BY number LIMIT ?
"""


class MemoryState(StrEnum):
    """Whether a memory is being filled, may be used, or is being deleted."""

    IMPORTING = "importing"
    COMPLETE = "complete"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class TranslationMemory:
    """A translation memory without its units.

    source, targets: language codes, in small letters. created, updated: in ISO 8601, UTC.
    secret: in the addresses from which the memory is filled and fetched.
    """

    number: int
    id: str
    owner: str
    name: str
    source: str
    targets: tuple[str, ...]
    num_units: int
    created: str
    updated: str
    secret: str
    import_job: str
    state: MemoryState


@dataclass(frozen=True, slots=True)
class StoredUnit:
    """A unit with its number, by which units are paged."""

    number: int
    created: str
    unit: TranslationUnit


class TranslationMemories:
    """All translation memories; replicas share them. Methods raise TranslationMemoryNotFound."""

    def __init__(self, folder: Path) -> None:
        self._database = DatabaseThread(folder, "memories", SCHEMA)
        self._removal: asyncio.Task[None] | None = None

    async def create(self, owner: str, name: str) -> TranslationMemory:
        """Make a memory that can be used once it is filled. Raises QuotaExceeded."""
        return await self._database.run(insert_memory, owner, name)

    async def get(self, owner: str, identity: str) -> TranslationMemory:
        return await self._database.run(find_memory, owner, identity)

    async def get_by_import(self, owner: str | None, job: str) -> TranslationMemory:
        """Return the memory that an import makes, complete or not. owner: None stands for any."""
        return await self._database.run(find_by_import, owner, job)

    async def get_by_secret(self, identity: str, secret: str) -> TranslationMemory:
        return await self._database.run(find_by_secret, identity, secret)

    async def list_memories(self, owner: str) -> list[TranslationMemory]:
        return await self._database.run(list_memories, owner)

    async def remove(self, owner: str, identity: str) -> None:
        """Delete a memory. It is gone at once for all who use it; its units follow."""
        await self._database.run(mark_removed, (await self.get(owner, identity)).number)
        self._start_removal()

    async def list_units(
        self,
        number: int,
        after: int = 0,
        count: int = PAGE_UNITS,
        contains: str = "",
        is_case_sensitive: bool = False,
    ) -> list[StoredUnit]:
        """Return units of the memory of a number, in order.

        after: the number of the unit before the first one. contains: a text that occurs in the
        source or in a target.
        """
        arguments = (number, after, count, contains, is_case_sensitive)
        return await self._database.run(list_units, *arguments)

    async def begin_import(self, job: str) -> None:
        """Empty the memory of an import, which may have been interrupted before."""
        self._start_removal()
        await self._empty((await self.get_by_import(None, job)).number)

    async def add_units(self, job: str, units: Sequence[TranslationUnit]) -> int:
        """Add units to the memory of an import, in one transaction. Return how many were already
        there with all of their targets; other targets replace those before.
        """
        return await self._database.run(add_units, job, units)

    async def complete_import(self, job: str, source: str) -> None:
        """Let the memory of an import be used."""
        await self._database.run(mark_complete, job, source)

    async def discard_import(self, job: str) -> None:
        """Delete the memory of an import that failed, unless it is complete or gone."""
        await self._database.run(mark_failed, job)
        self._start_removal()

    def _start_removal(self) -> None:
        if self._removal is None or self._removal.done():
            self._removal = asyncio.create_task(self._remove_marked())

    async def _remove_marked(self) -> None:
        """Delete removed memories, also those whose deletion was interrupted."""
        while numbers := await self._database.run(find_removed):
            await self._empty(numbers[0])
            await self._database.run(delete_memory, numbers[0])

    async def _empty(self, number: int) -> None:
        """Delete the units of a memory, some at a time, so that others can use theirs meanwhile."""
        while await self._database.run(remove_some_units, number):
            pass

    async def matches(
        self, use: MemoryUse, source: str, texts: Sequence[str]
    ) -> list[MemoryMatch | None]:
        """Return the best match of each text; None where nothing is alike enough, or where the
        memory is of other languages.

        source: the language of the texts.
        """
        memory = await self.get(use.owner, use.id)
        targets = match_codes(use.target, memory.targets)
        if not (targets and match_codes(source, (memory.source,))):
            return [None] * len(texts)
        arguments = (memory.number, targets[0], use.threshold)
        return [await self._database.run(best_match, *arguments, text) for text in texts]


def insert_memory(database: sqlite3.Connection, owner: str, name: str) -> TranslationMemory:
    now, job = _now(), str(uuid4())
    with transaction(database):
        forgotten = "UPDATE memories SET state = ? WHERE state = ? AND created < ?"
        database.execute(
            forgotten, (MemoryState.REMOVED, MemoryState.IMPORTING, _now(-UPLOAD_HOURS))
        )
        query = "SELECT count(*) FROM memories WHERE owner = ?"
        if database.execute(query, (owner,)).fetchone()[0] >= MAX_MEMORIES:
            message = f"there may be no more than {MAX_MEMORIES} translation memories of a key"
            raise QuotaExceeded(message)
        database.execute(
            "INSERT INTO memories (id, owner, name, created, updated, secret, import_job, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (str(uuid4()), owner, name, now, now, token_urlsafe(32), job, MemoryState.IMPORTING),
        )
    return find_by_import(database, owner, job)


def find_memory(database: sqlite3.Connection, owner: str, identity: str) -> TranslationMemory:
    """Return a complete memory of this owner."""
    query = "SELECT * FROM memories WHERE id = ? AND owner = ? AND state = ?"
    return _find_row(database, identity, query, (identity, owner, MemoryState.COMPLETE))


def find_by_import(database: sqlite3.Connection, owner: str | None, job: str) -> TranslationMemory:
    query = "SELECT * FROM memories WHERE import_job = ? AND (? IS NULL OR owner = ?)"
    return _find_row(database, job, query, (job, owner, owner))


def find_by_secret(database: sqlite3.Connection, identity: str, secret: str) -> TranslationMemory:
    query = "SELECT * FROM memories WHERE ? IN (id, import_job) AND secret = ?"
    return _find_row(database, identity, query, (identity, secret))


def list_memories(database: sqlite3.Connection, owner: str) -> list[TranslationMemory]:
    query = "SELECT * FROM memories WHERE owner = ? AND state = ? ORDER BY number"
    rows = database.execute(query, (owner, MemoryState.COMPLETE)).fetchall()
    return [*map(_memory, rows)]


def mark_removed(database: sqlite3.Connection, number: int) -> None:
    database.execute(
        "UPDATE memories SET state = ? WHERE number = ?", (MemoryState.REMOVED, number)
    )


def mark_failed(database: sqlite3.Connection, job: str) -> None:
    query = "UPDATE memories SET state = ? WHERE import_job = ? AND state = ?"
    database.execute(query, (MemoryState.REMOVED, job, MemoryState.IMPORTING))


def find_removed(database: sqlite3.Connection) -> list[int]:
    query = "SELECT number FROM memories WHERE state = ?"
    return [row["number"] for row in database.execute(query, (MemoryState.REMOVED,)).fetchall()]


def remove_some_units(database: sqlite3.Connection, memory: int) -> bool:
    """Delete some units of a memory; return whether there were any."""
    query = "SELECT number, words FROM units WHERE memory = ? LIMIT ?"
    units = database.execute(query, (memory, _BATCH_UNITS)).fetchall()
    with transaction(database):
        for unit in units:
            ids = array("I", unit["words"])
            database.executemany(
                "DELETE FROM words WHERE memory = ? AND word = ? AND num_words = ? AND unit = ?",
                ((memory, word, len(ids), unit["number"]) for word in {*ids}),
            )
            database.execute("DELETE FROM units WHERE number = ?", (unit["number"],))
    return bool(units)


def delete_memory(database: sqlite3.Connection, memory: int) -> None:
    database.execute("DELETE FROM memories WHERE number = ?", (memory,))


def list_units(
    database: sqlite3.Connection,
    number: int,
    after: int,
    count: int,
    contains: str,
    is_case_sensitive: bool,
) -> list[StoredUnit]:
    fold: Callable[[str], str] = str if is_case_sensitive else str.casefold
    database.create_function("folded", 1, fold, deterministic=True)
    text = fold(contains)
    rows = database.execute(_SELECT_UNITS, (number, after, text, text, text, count))
    return [_stored_unit(database, row) for row in rows.fetchall()]


def add_units(database: sqlite3.Connection, job: str, units: Sequence[TranslationUnit]) -> int:
    number, now = find_by_import(database, None, job).number, _now()
    with transaction(database):
        return sum(not _add_unit(database, number, unit, now) for unit in units)


def _add_unit(database: sqlite3.Connection, memory: int, unit: TranslationUnit, now: str) -> bool:
    """Add a unit, or its targets to the unit of the same source; return whether that changed
    anything.
    """
    ids = word_ids(unit.source.text)
    values = (memory, unit.source.text, unit.source.xml, ids.tobytes(), now)
    cursor = database.execute(
        "INSERT OR IGNORE INTO units (memory, source, source_xml, words, created)"
        " VALUES (?, ?, ?, ?, ?)",
        values,
    )
    is_new = cursor.rowcount > 0
    if is_new:
        number = cursor.lastrowid
        database.executemany(
            "INSERT INTO words VALUES (?, ?, ?, ?)",
            ((memory, word, len(ids), number) for word in sorted({*ids})),
        )
    else:
        query = "SELECT number FROM units WHERE memory = ? AND source = ?"
        [number] = database.execute(query, (memory, unit.source.text)).fetchone()
    changes = database.total_changes
    database.executemany(
        "INSERT INTO targets VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
        " SET target = excluded.target, target_xml = excluded.target_xml"
        " WHERE target IS NOT excluded.target OR target_xml IS NOT excluded.target_xml",
        ((number, code, target.text, target.xml) for code, target in unit.targets.items()),
    )
    return database.total_changes > changes


def mark_complete(database: sqlite3.Connection, job: str, source: str) -> None:
    number = find_by_import(database, None, job).number
    [num_units] = database.execute(
        "SELECT count(*) FROM units WHERE memory = ?", (number,)
    ).fetchone()
    languages = database.execute(
        "SELECT DISTINCT language FROM targets JOIN units ON number = unit WHERE memory = ?"
        " ORDER BY language",
        (number,),
    )
    targets = json.dumps([row["language"] for row in languages])
    database.execute(
        "UPDATE memories SET state = ?, source = ?, targets = ?, num_units = ?, updated = ?"
        " WHERE number = ?",
        (MemoryState.COMPLETE, source, targets, num_units, _now(), number),
    )


def _find_row(
    database: sqlite3.Connection, identity: str, query: str, values: tuple[object, ...]
) -> TranslationMemory:
    row = database.execute(query, values).fetchone()
    if row is None:
        raise TranslationMemoryNotFound(identity)
    return _memory(row)


def _memory(row: sqlite3.Row) -> TranslationMemory:
    return TranslationMemory(
        number=row["number"],
        id=row["id"],
        owner=row["owner"],
        name=row["name"],
        source=row["source"],
        targets=tuple(json.loads(row["targets"])),
        num_units=row["num_units"],
        created=row["created"],
        updated=row["updated"],
        secret=row["secret"],
        import_job=row["import_job"],
        state=MemoryState(row["state"]),
    )


def _stored_unit(database: sqlite3.Connection, row: sqlite3.Row) -> StoredUnit:
    query = "SELECT * FROM targets WHERE unit = ? ORDER BY language"
    targets = {
        target["language"]: MemorySegment(target["target"], target["target_xml"])
        for target in database.execute(query, (row["number"],))
    }
    source = MemorySegment(row["source"], row["source_xml"])
    return StoredUnit(row["number"], row["created"], TranslationUnit(source, targets))


def split_into_batches(units: Iterator[TranslationUnit]) -> Iterator[list[TranslationUnit]]:
    """Yield the units in lists as long as one transaction takes."""
    while batch := list(islice(units, _BATCH_UNITS)):
        yield batch


def _now(hours: float = 0.0) -> str:
    """Return the present time in ISO 8601, or that of so many hours later."""
    time = datetime.now(UTC) + timedelta(hours=hours)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

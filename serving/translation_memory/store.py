"""Store the translation memories of each key, and find the unit that is most like a segment.

A memory has one source language and several target languages. It belongs to the key that made it;
without keys it belongs to everybody. The memories of other keys are invisible.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain, islice
from secrets import token_urlsafe
from uuid import uuid4

from serving.errors import QuotaExceeded, TranslationMemoryNotFound
from serving.pipelines.translation.memory import MemoryMatch, MemoryUse
from serving.storage.database import Connection, Row
from serving.storage.schema import Migration, Schema
from serving.storage.state import State
from serving.text.languages import match_codes
from serving.translation_memory.lookup import (
    INDEXED_CHARACTERS,
    SOURCE_START,
    best_matches,
    is_storable,
    list_values,
    split_values,
)
from serving.translation_memory.similarity import word_ids
from serving.translation_memory.tmx import MemorySegment, TranslationUnit

MAX_MEMORIES = 1000  # of one key
UPLOAD_HOURS = 24  # the file of an import must come within
# Of one transaction: half a second, for which nothing else is written to SQLite.
_BATCH_UNITS = 2_000
_BATCH_WORDS = 50_000  # rows
_FIRST_WORD = (0, 0, 0)  # no word, number of words or unit is below
_BATCH_TEXTS = 8  # that are looked up at a time
_BATCH_SCANNED = 5_000  # units that are searched for a text
_COUNTED_UNITS = 20_000  # whose words are counted at a time
_NUM_WORD_IDS = 2**32
PAGE_UNITS = 500

_TABLES = """
CREATE TABLE IF NOT EXISTS memories (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
    created TEXT NOT NULL, updated TEXT NOT NULL, secret TEXT NOT NULL,
    import_job TEXT NOT NULL UNIQUE, state TEXT NOT NULL, source TEXT NOT NULL DEFAULT '',
    targets TEXT NOT NULL DEFAULT '[]', num_units INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS units (
    number INTEGER PRIMARY KEY,
    memory INTEGER NOT NULL REFERENCES memories,
    source TEXT NOT NULL, source_xml TEXT, words BLOB NOT NULL, created TEXT NOT NULL
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
# A source is unique in its memory, which `add_units` sees to: an index of whole texts, as older
# databases have it, is limited to short ones in PostgreSQL.
_INDEXES = f"""
CREATE INDEX units_by_source ON units (memory, {SOURCE_START});
CREATE INDEX units_by_number ON units (memory, number);
CREATE TABLE word_counts (
    memory INTEGER NOT NULL, word INTEGER NOT NULL, num_units INTEGER NOT NULL,
    PRIMARY KEY (memory, word)
) STRICT, WITHOUT ROWID;
INSERT INTO word_counts (memory, word, num_units)
    SELECT memory, word, count(*) FROM words GROUP BY memory, word;
"""
SCHEMA = Schema("memories", [Migration(_TABLES), Migration(_INDEXES)])


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

    def __init__(self, state: State) -> None:
        self._database = state.database(SCHEMA)
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
        if not contains:
            return await self._database.run(list_units, number, after, count)
        fold: Callable[[str], str] = str if is_case_sensitive else str.casefold
        units: list[StoredUnit] = []
        last: int | None = after
        while last is not None and len(units) < count:
            numbers, last = await self._database.run(find_units, number, last, fold(contains), fold)
            numbers = numbers[: count - len(units)]
            units += await self._database.run(get_units, number, numbers)
        return units

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
        number = (await self.get_by_import(None, job)).number
        num_units = await self._database.run(count_units_of_memory, number)
        num_steps = 1 + num_units // _COUNTED_UNITS
        for step in range(num_steps):
            words = (_NUM_WORD_IDS * step // num_steps, _NUM_WORD_IDS * (step + 1) // num_steps)
            await self._database.run(count_words, number, *words)
        await self._database.run(analyze)
        await self._database.run(mark_complete, number, source)

    async def discard_import(self, job: str) -> None:
        """Delete the memory of an import that failed, unless it is complete or gone."""
        await self._database.run(mark_failed, job)
        self._start_removal()

    def _start_removal(self) -> None:
        if self._removal is None or self._removal.done():
            self._removal = asyncio.create_task(self._remove_marked())

    async def _remove_marked(self) -> None:
        """Delete removed memories, also those whose deletion was interrupted."""
        while (number := await self._database.run(find_removed)) is not None:
            await self._empty(number)
            await self._database.run(delete_memory, number)

    async def _empty(self, number: int) -> None:
        """Delete the units of a memory, some at a time, so that others can use theirs meanwhile."""
        words: tuple[int, ...] | None = _FIRST_WORD
        while words is not None:
            words = await self._database.run(remove_some_words, number, words)
        unit: int | None = 0
        while unit is not None:
            unit = await self._database.run(remove_some_units, number, unit)

    async def matches(
        self, use: MemoryUse, source: str, texts: Sequence[str]
    ) -> list[MemoryMatch | None]:
        """Return the best match of each text; None where nothing is alike enough, or where the
        memory is of other languages.

        source: the language of the texts.
        """
        matches: list[MemoryMatch | None] = []
        for start in range(0, len(texts), _BATCH_TEXTS):
            batch = texts[start : start + _BATCH_TEXTS]
            matches += await self._database.run(find_matches, use, source, batch)
        return matches


def insert_memory(connection: Connection, owner: str, name: str) -> TranslationMemory:
    job = str(uuid4())
    with connection.transaction(f"memories of {owner}"):
        now = connection.time()
        forgotten = "UPDATE memories SET state = ? WHERE state = ? AND created < ?"
        oldest = _iso_time(now - UPLOAD_HOURS * 3600)
        connection.execute(forgotten, (MemoryState.REMOVED, MemoryState.IMPORTING, oldest))
        query = "SELECT count(*) AS num_memories FROM memories WHERE owner = ?"
        [row] = connection.rows(query, (owner,))
        if row["num_memories"] >= MAX_MEMORIES:
            message = f"there may be no more than {MAX_MEMORIES} translation memories of a key"
            raise QuotaExceeded(message)
        times = (_iso_time(now), _iso_time(now))
        connection.execute(
            "INSERT INTO memories (id, owner, name, created, updated, secret, import_job, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (str(uuid4()), owner, name, *times, token_urlsafe(32), job, MemoryState.IMPORTING),
        )
    return find_by_import(connection, owner, job)


def find_memory(connection: Connection, owner: str, identity: str) -> TranslationMemory:
    """Return a complete memory of this owner."""
    query = "SELECT * FROM memories WHERE id = ? AND owner = ? AND state = ?"
    return _find_row(connection, identity, query, (identity, owner, MemoryState.COMPLETE))


def find_by_import(connection: Connection, owner: str | None, job: str) -> TranslationMemory:
    query = "SELECT * FROM memories WHERE import_job = ? AND coalesce(?, owner) = owner"
    return _find_row(connection, job, query, (job, owner))


def find_by_secret(connection: Connection, identity: str, secret: str) -> TranslationMemory:
    query = "SELECT * FROM memories WHERE ? IN (id, import_job) AND secret = ?"
    return _find_row(connection, identity, query, (identity, secret))


def list_memories(connection: Connection, owner: str) -> list[TranslationMemory]:
    query = "SELECT * FROM memories WHERE owner = ? AND state = ? ORDER BY number"
    return [*map(_memory, connection.rows(query, (owner, MemoryState.COMPLETE)))]


def find_matches(
    connection: Connection, use: MemoryUse, source: str, texts: Sequence[str]
) -> list[MemoryMatch | None]:
    memory = find_memory(connection, use.owner, use.id)
    targets = match_codes(use.target, memory.targets)
    if not (targets and match_codes(source, (memory.source,))):
        return [None] * len(texts)
    return best_matches(connection, memory.number, targets[0], use.threshold, texts)


def mark_removed(connection: Connection, number: int) -> None:
    statement = "UPDATE memories SET state = ? WHERE number = ?"
    connection.execute(statement, (MemoryState.REMOVED, number))


def mark_failed(connection: Connection, job: str) -> None:
    statement = "UPDATE memories SET state = ? WHERE import_job = ? AND state = ?"
    connection.execute(statement, (MemoryState.REMOVED, job, MemoryState.IMPORTING))


def find_removed(connection: Connection) -> int | None:
    query = "SELECT number FROM memories WHERE state = ? ORDER BY number LIMIT 1"
    row = connection.row(query, (MemoryState.REMOVED,))
    return None if row is None else int(row["number"])


def remove_some_words(
    connection: Connection, memory: int, start: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Delete some of the rows of a memory's words, from a word, number of words and unit on. Return
    where the rows begin that are left; None without any.

    Who begins at the first row instead reads all that were deleted: PostgreSQL's index has them
    until they are vacuumed.
    """
    with connection.transaction(_lock(memory)):
        query = f"""
            SELECT word, num_words, unit FROM words
            WHERE memory = ? AND (word, num_words, unit) >= (?, ?, ?)
            ORDER BY word, num_words, unit LIMIT 1 OFFSET {_BATCH_WORDS}
        """
        next_row = connection.row(query, (memory, *start))
        statement = "DELETE FROM words WHERE memory = ? AND (word, num_words, unit) >= (?, ?, ?)"
        if next_row is None:
            connection.execute(statement, (memory, *start))
            return None
        end = (next_row["word"], next_row["num_words"], next_row["unit"])
        statement += " AND (word, num_words, unit) < (?, ?, ?)"
        connection.execute(statement, (memory, *start, *end))
    return end


def remove_some_units(connection: Connection, memory: int, start: int) -> int | None:
    """Delete some units of a memory, from a number on. Return the number of the first that is left;
    None without any.
    """
    with connection.transaction(_lock(memory)):
        query = f"""
            SELECT number FROM units WHERE memory = ? AND number >= ?
            ORDER BY number LIMIT 1 OFFSET {_BATCH_UNITS}
        """
        next_row = connection.row(query, (memory, start))
        statement = "DELETE FROM units WHERE memory = ? AND number >= ?"
        if next_row is None:
            connection.execute(statement, (memory, start))
            connection.execute("DELETE FROM word_counts WHERE memory = ?", (memory,))
            return None
        end = int(next_row["number"])
        connection.execute(f"{statement} AND number < ?", (memory, start, end))
    return end


def delete_memory(connection: Connection, memory: int) -> None:
    connection.execute("DELETE FROM memories WHERE number = ?", (memory,))


def list_units(connection: Connection, memory: int, after: int, count: int) -> list[StoredUnit]:
    query = "SELECT * FROM units WHERE memory = ? AND number > ? ORDER BY number LIMIT ?"
    return _with_targets(connection, connection.rows(query, (memory, after, count)))


def find_units(
    connection: Connection, memory: int, after: int, text: str, fold: Callable[[str], str]
) -> tuple[list[int], int | None]:
    """Search the next units of a memory for a text.

    Return the numbers of those that have it, and the number after which the search goes on; None at
    the end of the memory. fold: what is done to texts before they are compared.
    """
    query = "SELECT number, source FROM units WHERE memory = ? AND number > ? ORDER BY number"
    rows = connection.rows(f"{query} LIMIT {_BATCH_SCANNED}", (memory, after))
    if not rows:
        return [], None
    numbers = {row["number"] for row in rows if text in fold(row["source"])}
    last = rows[-1]["number"]
    query = """
        SELECT unit, target FROM units JOIN targets ON unit = number
        WHERE memory = ? AND number > ? AND number <= ?
    """
    targets = connection.rows(query, (memory, after, last))
    numbers |= {row["unit"] for row in targets if text in fold(row["target"])}
    return sorted(numbers), last if len(rows) == _BATCH_SCANNED else None


def get_units(connection: Connection, memory: int, numbers: Sequence[int]) -> list[StoredUnit]:
    """Return units of a memory, in the order of their numbers."""
    rows: list[Row] = []
    for part in split_values(numbers):
        places, values = list_values(part)
        query = f"SELECT * FROM units WHERE memory = ? AND number IN ({places}) ORDER BY number"
        rows += connection.rows(query, (memory, *values))
    return _with_targets(connection, rows)


def _with_targets(connection: Connection, rows: Sequence[Row]) -> list[StoredUnit]:
    """Return the units of rows of the table `units`."""
    targets = _targets(connection, [row["number"] for row in rows])
    return [
        StoredUnit(
            row["number"],
            row["created"],
            TranslationUnit(
                MemorySegment(row["source"], row["source_xml"]),
                dict(sorted(targets[row["number"]].items())),
            ),
        )
        for row in rows
    ]


def _targets(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[str, MemorySegment]]:
    """Return the targets of units, by number and language."""
    targets: dict[int, dict[str, MemorySegment]] = {number: {} for number in numbers}
    for part in split_values(numbers):
        places, values = list_values(part)
        query = f"SELECT unit, language, target, target_xml FROM targets WHERE unit IN ({places})"
        for row in connection.rows(query, values):
            segment = MemorySegment(row["target"], row["target_xml"])
            targets[row["unit"]][row["language"]] = segment
    return targets


def add_units(connection: Connection, job: str, units: Sequence[TranslationUnit]) -> int:
    memory = find_by_import(connection, None, job).number
    with connection.transaction(_lock(memory)):
        if find_by_import(connection, None, job).state is MemoryState.REMOVED:
            raise TranslationMemoryNotFound(job)
        numbers = _find_numbers(connection, memory, {unit.source.text for unit in units})
        stored_targets = _targets(connection, [*numbers.values()])
        targets = {source: stored_targets[number] for source, number in numbers.items()}
        new_sources: dict[str, MemorySegment] = {}
        changed_targets: dict[tuple[str, str], MemorySegment] = {}
        num_unchanged = 0
        for unit in units:
            source = unit.source.text
            if source not in targets:
                new_sources[source], targets[source] = unit.source, {}
            before = targets[source]
            changes = {code: it for code, it in unit.targets.items() if before.get(code) != it}
            num_unchanged += not changes
            before.update(changes)
            changed_targets.update({(source, code): it for code, it in changes.items()})
        connection.execute_many(
            "DELETE FROM targets WHERE unit = ? AND language = ?",
            [
                (numbers[source], code)
                for source, code in changed_targets
                if source not in new_sources
            ],
        )
        numbers |= _insert_sources(connection, memory, [*new_sources.values()])
        connection.insert_rows(
            "targets",
            ("unit", "language", "target", "target_xml"),
            (
                (numbers[source], code, target.text, target.xml)
                for (source, code), target in changed_targets.items()
            ),
        )
    return num_unchanged


def _find_numbers(connection: Connection, memory: int, sources: Iterable[str]) -> dict[str, int]:
    """Return the numbers of the units of a memory that begin as some sources do, by source."""
    numbers = {}
    for starts in split_values({source[:INDEXED_CHARACTERS] for source in sources}):
        places, values = list_values(starts)
        query = (
            f"SELECT number, source FROM units WHERE memory = ? AND {SOURCE_START} IN ({places})"
        )
        for row in connection.rows(query, (memory, *values)):
            numbers[row["source"]] = row["number"]
    return numbers


def _insert_sources(
    connection: Connection, memory: int, sources: Sequence[MemorySegment]
) -> dict[str, int]:
    """Insert units without their targets; return their numbers, by source."""
    created = _iso_time(connection.time())
    ids = {source.text: word_ids(source.text) for source in sources}
    numbers = {}
    for part in split_values(sources):
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(part))
        statement = f"""
            INSERT INTO units (memory, source, source_xml, words, created) VALUES {places}
            RETURNING number, source
        """
        values = [
            (memory, source.text, source.xml, ids[source.text].tobytes(), created)
            for source in part
        ]
        for row in connection.rows(statement, [*chain.from_iterable(values)]):
            numbers[row["source"]] = row["number"]
    words = [
        (memory, word, len(ids[source]), number)
        for source, number in numbers.items()
        for word in {*ids[source]}
    ]
    words.sort()  # as the index has them: a page of it is written once
    connection.insert_rows("words", ("memory", "word", "num_words", "unit"), words)
    return numbers


def count_words(connection: Connection, memory: int, first: int, end: int) -> None:
    """Store how many units of a memory have each word of some ids."""
    connection.execute(
        "INSERT INTO word_counts (memory, word, num_units)"
        " SELECT memory, word, count(*) FROM words"
        " WHERE memory = ? AND word >= ? AND word < ? GROUP BY memory, word"
        " ON CONFLICT (memory, word) DO UPDATE SET num_units = excluded.num_units",
        (memory, first, end),
    )


def analyze(connection: Connection) -> None:
    connection.analyze("units", "targets", "words", "word_counts")


def count_units_of_memory(connection: Connection, memory: int) -> int:
    query = "SELECT count(*) AS num_units FROM units WHERE memory = ?"
    [row] = connection.rows(query, (memory,))
    return int(row["num_units"])


def mark_complete(connection: Connection, memory: int, source: str) -> None:
    query = """
        SELECT DISTINCT language FROM targets JOIN units ON number = unit WHERE memory = ?
    """
    targets = sorted(row["language"] for row in connection.rows(query, (memory,)))
    connection.execute(
        "UPDATE memories SET state = ?, source = ?, targets = ?, num_units = ?, updated = ?"
        " WHERE number = ? AND state <> ?",
        (
            MemoryState.COMPLETE,
            source,
            json.dumps(targets),
            count_units_of_memory(connection, memory),
            _iso_time(connection.time()),
            memory,
            MemoryState.REMOVED,
        ),
    )


def _lock(memory: int) -> str:
    """Return the name of the lock of transactions that add or delete units of a memory."""
    return f"units of memory {memory}"


def _find_row(
    connection: Connection, identity: str, query: str, values: Sequence[object]
) -> TranslationMemory:
    texts = (value for value in values if isinstance(value, str))
    row = connection.row(query, values) if all(map(is_storable, texts)) else None
    if row is None:
        raise TranslationMemoryNotFound(identity)
    return _memory(row)


def _memory(row: Row) -> TranslationMemory:
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


def split_into_batches(units: Iterator[TranslationUnit]) -> Iterator[list[TranslationUnit]]:
    """Yield the units in lists as long as one transaction takes."""
    while batch := list(islice(units, _BATCH_UNITS)):
        yield batch


def _iso_time(seconds: float) -> str:
    """Return a time, in seconds since 1970, in ISO 8601."""
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")

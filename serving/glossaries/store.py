"""Store the glossaries of each key, and find the entries that a text needs.

A glossary has a dictionary for each pair of languages. It belongs to the key that made it; without
keys it belongs to everybody. The glossaries of other keys are invisible.
"""

import asyncio
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from serving.errors import GlossaryNotFound, QuotaExceeded, RequestError, TooLarge
from serving.glossaries.entries import MAX_BYTES, Entries, GlossaryPair
from serving.pipelines.translation.job import GlossaryEntry
from serving.storage.sqlite import DatabaseThread, transaction
from serving.text.terms import TextWords, first_word

MAX_GLOSSARIES_PER_KEY = 1000  # of one key, as in DeepL
SCHEMA = """
PRAGMA foreign_keys = ON;
CREATE TABLE IF NOT EXISTS glossaries (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, created TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS glossaries_of_owners ON glossaries (owner);
CREATE TABLE IF NOT EXISTS dictionaries (
    id INTEGER PRIMARY KEY,
    glossary TEXT NOT NULL REFERENCES glossaries ON DELETE CASCADE,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    num_entries INTEGER NOT NULL DEFAULT 0,
    UNIQUE (glossary, source, target)
) STRICT;
CREATE TABLE IF NOT EXISTS entries (
    dictionary INTEGER NOT NULL REFERENCES dictionaries ON DELETE CASCADE,
    term TEXT NOT NULL,
    translation TEXT NOT NULL,
    first_word TEXT NOT NULL,
    UNIQUE (dictionary, term)
) STRICT;
CREATE INDEX IF NOT EXISTS entries_by_word ON entries (dictionary, first_word);
"""
_BYTES_OF_GLOSSARY = """
SELECT total(length(CAST(term AS BLOB)) + length(CAST(translation AS BLOB)) + 2)
FROM entries JOIN dictionaries ON dictionaries.id = dictionary WHERE glossary = ?
"""
_ENTRIES_OF_PAIR = """
SELECT term, translation FROM entries JOIN dictionaries ON dictionaries.id = dictionary
WHERE glossary = ? AND source = ? AND target = ?
"""
_CANDIDATES = f"""
{_ENTRIES_OF_PAIR} AND first_word IN (SELECT value FROM json_each(?)) ORDER BY entries.rowid
"""


@dataclass(frozen=True, slots=True)
class Dictionary:
    pair: GlossaryPair
    num_entries: int


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary without its entries.

    created: in ISO 8601, UTC.
    """

    id: str
    name: str
    created: str
    dictionaries: tuple[Dictionary, ...]

    def dictionary(self, pair: GlossaryPair) -> Dictionary:
        """Return the dictionary of a pair of languages. Raises RequestError."""
        for dictionary in self.dictionaries:
            if dictionary.pair == pair:
                return dictionary
        message = f"has no dictionary from {pair.source} to {pair.target}"
        raise RequestError("glossary_id", self.id, message)


class GlossaryStore:
    """All glossaries; replicas share them. Methods raise GlossaryNotFound, and RequestError if a
    glossary has no dictionary for a pair of languages.
    """

    def __init__(self, folder: Path) -> None:
        self._database = DatabaseThread(folder, "glossaries", SCHEMA)

    async def create(
        self, owner: str, name: str, dictionaries: Mapping[GlossaryPair, Entries]
    ) -> StoredGlossary:
        """Raises QuotaExceeded where the owner has too many, TooLarge for too many entries."""
        return await self._database.run(create, owner, name, dictionaries)

    async def change(
        self,
        owner: str,
        identity: str,
        name: str | None,
        dictionaries: Mapping[GlossaryPair, Entries],
    ) -> StoredGlossary:
        """Rename a glossary and merge entries into it. Raises TooLarge for too many entries."""
        return await self._database.run(change, owner, identity, name, dictionaries)

    async def replace_dictionary(
        self, owner: str, identity: str, pair: GlossaryPair, entries: Entries
    ) -> Dictionary:
        """Raises TooLarge for too many entries."""
        return await self._database.run(replace_dictionary, owner, identity, pair, entries)

    async def remove_dictionary(self, owner: str, identity: str, pair: GlossaryPair) -> None:
        await self._database.run(remove_dictionary, owner, identity, pair)

    async def remove(self, owner: str, identity: str) -> None:
        await self._database.run(remove, owner, identity)

    async def get(self, owner: str, identity: str) -> StoredGlossary:
        return await self._database.run(get_glossary, owner, identity)

    async def all_of(self, owner: str) -> list[StoredGlossary]:
        return await self._database.run(all_of, owner)

    async def entries(self, owner: str, identity: str, pair: GlossaryPair) -> dict[str, str]:
        return await self._database.run(entries_of, owner, identity, pair)

    async def occurring(
        self, owner: str, identities: Sequence[str], pair: GlossaryPair, texts: Sequence[str]
    ) -> tuple[GlossaryEntry, ...]:
        """Return the entries whose terms may occur in one of the texts, however many a glossary
        has: they are looked up by the words of the texts.
        """
        if not identities:
            return ()
        words = await asyncio.to_thread(TextWords, "\n".join(texts))
        first_words = words.first_words()
        entries = await self._database.run(candidates, owner, identities, pair, first_words)
        return await asyncio.to_thread(_entries_in, entries, words)


def _entries_in(entries: Entries, words: TextWords) -> tuple[GlossaryEntry, ...]:
    return tuple(
        GlossaryEntry(term, (translation,))
        for term, translation in entries.items()
        if words.may_have(term)
    )


def create(
    database: sqlite3.Connection,
    owner: str,
    name: str,
    dictionaries: Mapping[GlossaryPair, Entries],
) -> StoredGlossary:
    identity, created = str(uuid4()), _now()
    with transaction(database):
        query = "SELECT count(*) FROM glossaries WHERE owner = ?"
        if database.execute(query, (owner,)).fetchone()[0] >= MAX_GLOSSARIES_PER_KEY:
            raise QuotaExceeded(
                f"there may be no more than {MAX_GLOSSARIES_PER_KEY} glossaries of a key"
            )
        values = (identity, owner, name, created)
        database.execute("INSERT INTO glossaries VALUES (?, ?, ?, ?)", values)
        for pair, entries in dictionaries.items():
            _merge(database, identity, pair, entries)
    return get_glossary(database, owner, identity)


def change(
    database: sqlite3.Connection,
    owner: str,
    identity: str,
    name: str | None,
    dictionaries: Mapping[GlossaryPair, Entries],
) -> StoredGlossary:
    """Give a glossary another name, and further entries; those of the same term are replaced."""
    with transaction(database):
        get_glossary(database, owner, identity)
        if name is not None:
            database.execute("UPDATE glossaries SET name = ? WHERE id = ?", (name, identity))
        for pair, entries in dictionaries.items():
            _merge(database, identity, pair, entries)
    return get_glossary(database, owner, identity)


def replace_dictionary(
    database: sqlite3.Connection, owner: str, identity: str, pair: GlossaryPair, entries: Entries
) -> Dictionary:
    with transaction(database):
        get_glossary(database, owner, identity)
        _remove(database, identity, pair)
        _merge(database, identity, pair, entries)
    return Dictionary(pair, len(entries))


def remove_dictionary(
    database: sqlite3.Connection, owner: str, identity: str, pair: GlossaryPair
) -> None:
    with transaction(database):
        get_glossary(database, owner, identity).dictionary(pair)
        _remove(database, identity, pair)


def remove(database: sqlite3.Connection, owner: str, identity: str) -> None:
    with transaction(database):
        get_glossary(database, owner, identity)
        database.execute("DELETE FROM glossaries WHERE id = ?", (identity,))


def get_glossary(database: sqlite3.Connection, owner: str, identity: str) -> StoredGlossary:
    """Return a glossary of this owner. Raises GlossaryNotFound."""
    query = "SELECT * FROM glossaries WHERE id = ? AND owner = ?"
    row = database.execute(query, (identity, owner)).fetchone()
    if row is None:
        raise GlossaryNotFound(identity)
    return _glossary(database, row)


def all_of(database: sqlite3.Connection, owner: str) -> list[StoredGlossary]:
    query = "SELECT * FROM glossaries WHERE owner = ? ORDER BY created, rowid"
    return [_glossary(database, row) for row in database.execute(query, (owner,)).fetchall()]


def entries_of(
    database: sqlite3.Connection, owner: str, identity: str, pair: GlossaryPair
) -> dict[str, str]:
    """Return all entries of a dictionary, in the order in which they came."""
    get_glossary(database, owner, identity).dictionary(pair)
    query = f"{_ENTRIES_OF_PAIR} ORDER BY entries.rowid"
    return _as_entries(database.execute(query, (identity, pair.source, pair.target)))


def candidates(
    database: sqlite3.Connection,
    owner: str,
    identities: Sequence[str],
    pair: GlossaryPair,
    words: Iterable[str],
) -> dict[str, str]:
    """Return the entries of some glossaries that begin with one of these words; where several have
    the same term the first glossary counts.
    """
    translations: dict[str, str] = {}
    for identity in identities:
        get_glossary(database, owner, identity).dictionary(pair)
        values = (identity, pair.source, pair.target, json.dumps(list(words)))
        for term, translation in _as_entries(database.execute(_CANDIDATES, values)).items():
            translations.setdefault(term, translation)
    return translations


def _as_entries(rows: Iterable[sqlite3.Row]) -> dict[str, str]:
    return {row["term"]: row["translation"] for row in rows}


def _glossary(database: sqlite3.Connection, row: sqlite3.Row) -> StoredGlossary:
    query = "SELECT * FROM dictionaries WHERE glossary = ? ORDER BY id"
    dictionaries = tuple(_dictionaries(database.execute(query, (row["id"],))))
    return StoredGlossary(row["id"], row["name"], row["created"], dictionaries)


def _dictionaries(rows: Iterable[sqlite3.Row]) -> Iterator[Dictionary]:
    for row in rows:
        yield Dictionary(GlossaryPair(row["source"], row["target"]), row["num_entries"])


def _merge(
    database: sqlite3.Connection, identity: str, pair: GlossaryPair, entries: Entries
) -> None:
    """Add entries to the dictionary of a pair, which is made where it is missing."""
    key = (identity, pair.source, pair.target)
    database.execute(
        "INSERT OR IGNORE INTO dictionaries (glossary, source, target) VALUES (?, ?, ?)", key
    )
    query = "SELECT id FROM dictionaries WHERE glossary = ? AND source = ? AND target = ?"
    [dictionary] = database.execute(query, key).fetchone()
    database.executemany(
        "INSERT INTO entries VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET translation = excluded.translation",
        ((dictionary, term, entries[term], first_word(term)) for term in entries),
    )
    database.execute(
        "UPDATE dictionaries SET num_entries ="
        " (SELECT count(*) FROM entries WHERE dictionary = dictionaries.id) WHERE id = ?",
        (dictionary,),
    )
    [num_bytes] = database.execute(_BYTES_OF_GLOSSARY, (identity,)).fetchone()
    if num_bytes > MAX_BYTES:
        message = f"a glossary must have at most {MAX_BYTES} bytes"
        raise TooLarge("entries", f"{num_bytes:.0f} bytes", message)


def _remove(database: sqlite3.Connection, identity: str, pair: GlossaryPair) -> None:
    database.execute(
        "DELETE FROM dictionaries WHERE glossary = ? AND source = ? AND target = ?",
        (identity, pair.source, pair.target),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

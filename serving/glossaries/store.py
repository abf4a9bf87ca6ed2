"""Store the glossaries of each key, and find the entries that a text needs.

A glossary has a dictionary for each pair of languages. It belongs to the key that made it; without
keys it belongs to everybody. The glossaries of other keys are invisible.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from serving.errors import GlossaryNotFound, QuotaExceeded, RequestError, TooLarge
from serving.glossaries.entries import MAX_BYTES, Entries, GlossaryPair
from serving.pipelines.translation.job import GlossaryEntry
from serving.storage.database import Connection, Row
from serving.storage.schema import Migration, Schema
from serving.storage.state import State
from serving.text.terms import TextWords, first_word

MAX_GLOSSARIES_PER_KEY = 1000  # of one key, as in DeepL
_TABLES = """
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
# The order of the entries was that of SQLite's rows, in which SQLite reads the table here.
_NUMBERED_ENTRIES = """
CREATE TABLE numbered_entries (
    number INTEGER PRIMARY KEY,
    dictionary INTEGER NOT NULL REFERENCES dictionaries ON DELETE CASCADE,
    term TEXT NOT NULL,
    translation TEXT NOT NULL,
    first_word TEXT NOT NULL,
    UNIQUE (dictionary, term)
) STRICT;
INSERT INTO numbered_entries (dictionary, term, translation, first_word)
    SELECT dictionary, term, translation, first_word FROM entries;
DROP TABLE entries;
ALTER TABLE numbered_entries RENAME TO entries;
CREATE INDEX entries_by_word ON entries (dictionary, first_word);
"""
SCHEMA = Schema("glossaries", [Migration(_TABLES), Migration(_NUMBERED_ENTRIES, breaks_older=True)])
_BYTES_OF_GLOSSARY = """
SELECT CAST(coalesce(sum(octet_length(term) + octet_length(translation) + 2), 0) AS BIGINT)
    AS num_bytes
FROM entries JOIN dictionaries ON dictionaries.id = dictionary WHERE glossary = ?
"""
_ENTRIES_OF_PAIR = """
SELECT term, translation FROM entries JOIN dictionaries ON dictionaries.id = dictionary
WHERE glossary = ? AND source = ? AND target = ?
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

    def __init__(self, state: State) -> None:
        self._database = state.database(SCHEMA)

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
    connection: Connection,
    owner: str,
    name: str,
    dictionaries: Mapping[GlossaryPair, Entries],
) -> StoredGlossary:
    identity, created = str(uuid4()), _now()
    with connection.transaction(f"glossaries of {owner}"):
        query = "SELECT count(*) AS num_glossaries FROM glossaries WHERE owner = ?"
        [row] = connection.rows(query, (owner,))
        if row["num_glossaries"] >= MAX_GLOSSARIES_PER_KEY:
            raise QuotaExceeded(
                f"there may be no more than {MAX_GLOSSARIES_PER_KEY} glossaries of a key"
            )
        values = (identity, owner, name, created)
        connection.execute("INSERT INTO glossaries VALUES (?, ?, ?, ?)", values)
        for pair, entries in dictionaries.items():
            _merge(connection, identity, pair, entries)
    return get_glossary(connection, owner, identity)


def change(
    connection: Connection,
    owner: str,
    identity: str,
    name: str | None,
    dictionaries: Mapping[GlossaryPair, Entries],
) -> StoredGlossary:
    """Give a glossary another name, and further entries; those of the same term are replaced."""
    with connection.transaction(f"glossary {identity}"):
        get_glossary(connection, owner, identity)
        if name is not None:
            connection.execute("UPDATE glossaries SET name = ? WHERE id = ?", (name, identity))
        for pair, entries in dictionaries.items():
            _merge(connection, identity, pair, entries)
    return get_glossary(connection, owner, identity)


def replace_dictionary(
    connection: Connection, owner: str, identity: str, pair: GlossaryPair, entries: Entries
) -> Dictionary:
    with connection.transaction(f"glossary {identity}"):
        get_glossary(connection, owner, identity)
        _remove(connection, identity, pair)
        _merge(connection, identity, pair, entries)
    return Dictionary(pair, len(entries))


def remove_dictionary(
    connection: Connection, owner: str, identity: str, pair: GlossaryPair
) -> None:
    with connection.transaction(f"glossary {identity}"):
        get_glossary(connection, owner, identity).dictionary(pair)
        _remove(connection, identity, pair)


def remove(connection: Connection, owner: str, identity: str) -> None:
    with connection.transaction(f"glossary {identity}"):
        get_glossary(connection, owner, identity)
        connection.execute("DELETE FROM glossaries WHERE id = ?", (identity,))


def get_glossary(connection: Connection, owner: str, identity: str) -> StoredGlossary:
    """Return a glossary of this owner. Raises GlossaryNotFound."""
    query = "SELECT * FROM glossaries WHERE id = ? AND owner = ?"
    row = connection.row(query, (identity, owner))
    if row is None:
        raise GlossaryNotFound(identity)
    return _glossary(connection, row)


def all_of(connection: Connection, owner: str) -> list[StoredGlossary]:
    query = "SELECT * FROM glossaries WHERE owner = ? ORDER BY created, id"
    return [_glossary(connection, row) for row in connection.rows(query, (owner,))]


def entries_of(
    connection: Connection, owner: str, identity: str, pair: GlossaryPair
) -> dict[str, str]:
    """Return all entries of a dictionary, in the order in which they came."""
    get_glossary(connection, owner, identity).dictionary(pair)
    query = f"{_ENTRIES_OF_PAIR} ORDER BY entries.number"
    return _as_entries(connection.rows(query, (identity, pair.source, pair.target)))


def candidates(
    connection: Connection,
    owner: str,
    identities: Sequence[str],
    pair: GlossaryPair,
    words: Iterable[str],
) -> dict[str, str]:
    """Return the entries of some glossaries that begin with one of these words; where several have
    the same term the first glossary counts.
    """
    translations: dict[str, str] = {}
    query = f"{_ENTRIES_OF_PAIR} AND first_word {connection.IS_LISTED} ORDER BY entries.number"
    for identity in identities:
        get_glossary(connection, owner, identity).dictionary(pair)
        values = (identity, pair.source, pair.target, json.dumps(list(words)))
        for term, translation in _as_entries(connection.rows(query, values)).items():
            translations.setdefault(term, translation)
    return translations


def _as_entries(rows: Iterable[Row]) -> dict[str, str]:
    return {row["term"]: row["translation"] for row in rows}


def _glossary(connection: Connection, row: Row) -> StoredGlossary:
    query = "SELECT * FROM dictionaries WHERE glossary = ? ORDER BY id"
    dictionaries = tuple(_dictionaries(connection.rows(query, (row["id"],))))
    return StoredGlossary(row["id"], row["name"], row["created"], dictionaries)


def _dictionaries(rows: Iterable[Row]) -> Iterator[Dictionary]:
    for row in rows:
        yield Dictionary(GlossaryPair(row["source"], row["target"]), row["num_entries"])


def _merge(connection: Connection, identity: str, pair: GlossaryPair, entries: Entries) -> None:
    """Add entries to the dictionary of a pair, which is made where it is missing."""
    key = (identity, pair.source, pair.target)
    connection.execute(
        "INSERT INTO dictionaries (glossary, source, target) VALUES (?, ?, ?)"
        " ON CONFLICT (glossary, source, target) DO NOTHING",
        key,
    )
    query = "SELECT id FROM dictionaries WHERE glossary = ? AND source = ? AND target = ?"
    [row] = connection.rows(query, key)
    dictionary = row["id"]
    connection.execute_many(
        "INSERT INTO entries (dictionary, term, translation, first_word) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (dictionary, term) DO UPDATE SET translation = excluded.translation",
        ((dictionary, term, entries[term], first_word(term)) for term in entries),
    )
    connection.execute(
        "UPDATE dictionaries SET num_entries ="
        " (SELECT count(*) FROM entries WHERE dictionary = dictionaries.id) WHERE id = ?",
        (dictionary,),
    )
    [row] = connection.rows(_BYTES_OF_GLOSSARY, (identity,))
    if row["num_bytes"] > MAX_BYTES:
        message = f"a glossary must have at most {MAX_BYTES} bytes"
        raise TooLarge("entries", f"{row['num_bytes']} bytes", message)


def _remove(connection: Connection, identity: str, pair: GlossaryPair) -> None:
    connection.execute(
        "DELETE FROM dictionaries WHERE glossary = ? AND source = ? AND target = ?",
        (identity, pair.source, pair.target),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

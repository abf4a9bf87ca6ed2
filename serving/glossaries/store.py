"""Keeps the glossaries of each key, and finds the entries that a text needs.

A glossary holds a dictionary for each pair of languages. It belongs to the key that made it, and to
nobody where the server asks for no keys; of others' there is no sign.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from serving.glossaries import tables
from serving.glossaries.entries import Pair
from serving.glossaries.tables import Dictionary, Entries, Glossary
from serving.pipelines.translation.job import GlossaryEntry
from serving.storage import DatabaseThread
from serving.text.terms import Words


class GlossaryStore:
    """Knows all glossaries; replicas share them.

    Everything raises GlossaryNotFound, and RequestError where a glossary has no dictionary of a
    pair of languages.
    """

    def __init__(self, folder: Path) -> None:
        self._database = DatabaseThread(folder, "glossaries", tables.SCHEMA)

    async def create(self, owner: str, name: str, dictionaries: Mapping[Pair, Entries]) -> Glossary:
        """Raises QuotaExceeded where the owner has too many, TooLarge for too many entries."""
        return await self._database.run(tables.create, owner, name, dictionaries)

    async def change(
        self, owner: str, identity: str, name: str | None, dictionaries: Mapping[Pair, Entries]
    ) -> Glossary:
        """Rename a glossary and merge entries into it. Raises TooLarge for too many entries."""
        return await self._database.run(tables.change, owner, identity, name, dictionaries)

    async def replace_dictionary(
        self, owner: str, identity: str, pair: Pair, entries: Entries
    ) -> Dictionary:
        """Raises TooLarge for too many entries."""
        return await self._database.run(tables.replace_dictionary, owner, identity, pair, entries)

    async def remove_dictionary(self, owner: str, identity: str, pair: Pair) -> None:
        await self._database.run(tables.remove_dictionary, owner, identity, pair)

    async def remove(self, owner: str, identity: str) -> None:
        await self._database.run(tables.remove, owner, identity)

    async def get(self, owner: str, identity: str) -> Glossary:
        return await self._database.run(tables.found, owner, identity)

    async def all_of(self, owner: str) -> list[Glossary]:
        return await self._database.run(tables.all_of, owner)

    async def entries(self, owner: str, identity: str, pair: Pair) -> dict[str, str]:
        return await self._database.run(tables.entries_of, owner, identity, pair)

    async def occurring(
        self, owner: str, identities: Sequence[str], pair: Pair, texts: Sequence[str]
    ) -> tuple[GlossaryEntry, ...]:
        """Return the entries whose terms may occur in one of the texts, however many a glossary
        has: they are looked up by the words of the texts.
        """
        if not identities:
            return ()
        words = await asyncio.to_thread(Words, "\n".join(texts))
        found = await self._database.run(
            tables.candidates, owner, identities, pair, words.first_words()
        )
        return await asyncio.to_thread(_occurring, found, words)


def _occurring(entries: Entries, words: Words) -> tuple[GlossaryEntry, ...]:
    return tuple(
        GlossaryEntry(term, (translation,))
        for term, translation in entries.items()
        if words.may_have(term)
    )

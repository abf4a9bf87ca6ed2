"""Glossaries in state of both kinds: whose they are, their order, their limits, and several writers
at once.
"""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.errors import GlossaryNotFound, QuotaExceeded, RequestError, TooLarge
from serving.glossaries import store
from serving.glossaries.entries import MAX_BYTES, GlossaryPair
from serving.glossaries.store import GlossaryStore
from serving.storage.opening import open_state
from serving.storage.state import State

PAIR = GlossaryPair("en", "fr")
ENTRIES = {"zebra": "zèbre", "dog": "chien", "\u4e2d \U0001f600": "%s ? 'x' \\", "ant": "fourmi"}
# As versions before schemas had numbers made it.
OLD_TABLES = """
PRAGMA foreign_keys = ON;
CREATE TABLE glossaries (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, created TEXT NOT NULL
) STRICT;
CREATE INDEX glossaries_of_owners ON glossaries (owner);
CREATE TABLE dictionaries (
    id INTEGER PRIMARY KEY,
    glossary TEXT NOT NULL REFERENCES glossaries ON DELETE CASCADE,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    num_entries INTEGER NOT NULL DEFAULT 0,
    UNIQUE (glossary, source, target)
) STRICT;
CREATE TABLE entries (
    dictionary INTEGER NOT NULL REFERENCES dictionaries ON DELETE CASCADE,
    term TEXT NOT NULL,
    translation TEXT NOT NULL,
    first_word TEXT NOT NULL,
    UNIQUE (dictionary, term)
) STRICT;
CREATE INDEX entries_by_word ON entries (dictionary, first_word);
"""


@pytest.fixture
def glossaries(state: State) -> GlossaryStore:
    return GlossaryStore(state)


@pytest.fixture
def second_glossaries(state_place: str) -> Iterator[GlossaryStore]:
    """Those of another process."""
    state = open_state(state_place)
    yield GlossaryStore(state)
    state.close()


async def test_what_one_makes_another_process_has(
    glossaries: GlossaryStore, second_glossaries: GlossaryStore
) -> None:
    made = await glossaries.create("ann", "animals", {PAIR: ENTRIES})
    assert await second_glossaries.all_of("ann") == [made]
    entries = await second_glossaries.entries("ann", made.id, PAIR)
    assert list(entries.items()) == list(ENTRIES.items())  # in their order

    await second_glossaries.change("ann", made.id, "beasts", {PAIR: {"dog": "toutou"}})
    assert (await glossaries.get("ann", made.id)).name == "beasts"
    changed = await glossaries.entries("ann", made.id, PAIR)
    assert list(changed.items()) == list((ENTRIES | {"dog": "toutou"}).items())

    await glossaries.remove("ann", made.id)
    with pytest.raises(GlossaryNotFound):
        await second_glossaries.get("ann", made.id)


async def test_others_see_nothing(glossaries: GlossaryStore) -> None:
    made = await glossaries.create("ann", "animals", {PAIR: ENTRIES})
    assert await glossaries.all_of("bob") == []
    for work in (
        glossaries.get("bob", made.id),
        glossaries.remove("bob", made.id),
        glossaries.change("bob", made.id, "mine", {}),
        glossaries.occurring("bob", [made.id], PAIR, ["dog"]),
    ):
        with pytest.raises(GlossaryNotFound):
            await work


async def test_entries_are_found_by_the_words_of_texts(glossaries: GlossaryStore) -> None:
    many = {f"word{n} x": f"mot{n}" for n in range(3_000)}
    first = await glossaries.create("ann", "a", {PAIR: ENTRIES})
    second = await glossaries.create("ann", "b", {PAIR: {"dog": "clébard", **many}})
    texts = ["A zebra and a dog.", *(f"word{n} x" for n in range(1_000, 1_010))]
    entries = await glossaries.occurring("ann", [first.id, second.id], PAIR, texts)
    translations = {entry.term: entry.translations for entry in entries}
    assert translations == {
        "zebra": ("zèbre",),
        "dog": ("chien",),
        **{f"word{n} x": (f"mot{n}",) for n in range(1_000, 1_010)},
    }


async def test_dictionaries_are_replaced_and_removed(glossaries: GlossaryStore) -> None:
    made = await glossaries.create(
        "ann", "a", {PAIR: ENTRIES, GlossaryPair("fr", "en"): {"a": "b"}}
    )
    replaced = await glossaries.replace_dictionary("ann", made.id, PAIR, {"cat": "chat"})
    assert replaced.num_entries == 1
    assert await glossaries.entries("ann", made.id, PAIR) == {"cat": "chat"}
    await glossaries.remove_dictionary("ann", made.id, PAIR)
    with pytest.raises(RequestError, match="no dictionary from en to fr"):
        await glossaries.entries("ann", made.id, PAIR)


async def test_the_limit_of_a_key_holds_for_all_that_come_at_once(
    glossaries: GlossaryStore, second_glossaries: GlossaryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_GLOSSARIES_PER_KEY", 5)
    attempts = (
        part.create("ann", str(n), {PAIR: {"a": "b"}})
        for n in range(8)
        for part in (glossaries, second_glossaries)
    )
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(result, QuotaExceeded) for result in results) == 11
    assert len(await glossaries.all_of("ann")) == 5
    await glossaries.create("bob", "his", {})


async def test_a_glossary_that_is_too_large_stays_as_it_was(glossaries: GlossaryStore) -> None:
    made = await glossaries.create("ann", "a", {PAIR: {"dog": "chien"}})
    half = {"x" * 10: "é" * (MAX_BYTES // 4)}
    await glossaries.change("ann", made.id, None, {PAIR: half})
    with pytest.raises(TooLarge):
        await glossaries.change("ann", made.id, "b", {PAIR: {"y": "é" * (MAX_BYTES // 4)}})
    assert (await glossaries.get("ann", made.id)).name == "a"
    assert await glossaries.entries("ann", made.id, PAIR) == {"dog": "chien", **half}


async def test_changes_that_come_at_once_all_count(
    glossaries: GlossaryStore, second_glossaries: GlossaryStore
) -> None:
    made = await glossaries.create("ann", "a", {})
    changes = (
        part.change("ann", made.id, None, {PAIR: {f"{n}{name}": "x"}})
        for n in range(10)
        for name, part in (("a", glossaries), ("b", second_glossaries))
    )
    await asyncio.gather(*changes)
    [dictionary] = (await glossaries.get("ann", made.id)).dictionaries
    assert dictionary.num_entries == 20


async def test_glossaries_of_older_versions_keep_the_order_of_their_entries(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "glossaries.sqlite3") as database:
        database.executescript(OLD_TABLES)
        database.execute("INSERT INTO glossaries VALUES ('g', 'ann', 'old', '2026-01-01')")
        database.execute("INSERT INTO dictionaries VALUES (7, 'g', 'en', 'fr', 4)")
        rows = [(7, term, translation, term) for term, translation in ENTRIES.items()]
        database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
    database.close()
    glossaries = GlossaryStore(open_state(tmp_path))
    entries = await glossaries.entries("ann", "g", PAIR)
    assert list(entries.items()) == list(ENTRIES.items())
    await glossaries.change("ann", "g", None, {PAIR: {"cat": "chat"}})
    assert list(await glossaries.entries("ann", "g", PAIR)) == [*ENTRIES, "cat"]

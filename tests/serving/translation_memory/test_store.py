"""Translation memories in both kinds of state: the same answers, several servers at once, and what
a database cannot hold.
"""

import asyncio
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.errors import TranslationMemoryNotFound
from serving.pipelines.translation.job import MemoryUse
from serving.storage.database import Connection
from serving.storage.opening import open_state
from serving.storage.sqlite import SqliteConnection
from serving.storage.state import State
from serving.translation_memory import store
from serving.translation_memory.similarity import word_ids
from serving.translation_memory.store import TranslationMemories
from serving.translation_memory.tmx import MemorySegment, TranslationUnit
from tests.postgresql import NEEDS_POSTGRESQL

TEXTS = st.lists(
    st.sampled_from(["the", "The", "dog", "Hund", "été", "ÉTÉ", "犬", "7", "12", ".", ",", "İ"]),
    min_size=1,
    max_size=8,
).map(" ".join)
UNITS = st.builds(
    lambda source, targets: TranslationUnit(
        MemorySegment(source), {code: MemorySegment(text) for code, text in targets.items()}
    ),
    TEXTS,
    st.dictionaries(st.sampled_from(["fr", "pt", "pt-br", "de"]), TEXTS, min_size=1),
)
# The tables of versions before the first release with state in PostgreSQL.
OLD_SCHEMA = """
CREATE TABLE memories (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name TEXT NOT NULL,
    created TEXT NOT NULL, updated TEXT NOT NULL, secret TEXT NOT NULL,
    import_job TEXT NOT NULL UNIQUE, state TEXT NOT NULL, source TEXT NOT NULL DEFAULT '',
    targets TEXT NOT NULL DEFAULT '[]', num_units INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE units (
    number INTEGER PRIMARY KEY,
    memory INTEGER NOT NULL REFERENCES memories,
    source TEXT NOT NULL, source_xml TEXT, words BLOB NOT NULL, created TEXT NOT NULL,
    UNIQUE (memory, source)
) STRICT;
CREATE TABLE targets (
    unit INTEGER NOT NULL REFERENCES units ON DELETE CASCADE,
    language TEXT NOT NULL, target TEXT NOT NULL, target_xml TEXT,
    PRIMARY KEY (unit, language)
) STRICT, WITHOUT ROWID;
CREATE TABLE words (
    memory INTEGER NOT NULL, word INTEGER NOT NULL, num_words INTEGER NOT NULL,
    unit INTEGER NOT NULL,
    PRIMARY KEY (memory, word, num_words, unit)
) STRICT, WITHOUT ROWID;
"""


def unit(source: str, target: str = "") -> TranslationUnit:
    return TranslationUnit(MemorySegment(source), {"fr": MemorySegment(target or source.upper())})


async def fill(memories: TranslationMemories, *batches: list[TranslationUnit]) -> str:
    """Return the id of a new memory."""
    memory = await memories.create("", "team")
    for batch in batches:
        await memories.add_units(memory.import_job, batch)
    await memories.complete_import(memory.import_job, "en")
    return memory.id


def num_rows(connection: Connection) -> dict[str, int]:
    tables = ("memories", "units", "targets", "words", "word_counts")
    return {table: len(connection.rows(f"SELECT * FROM {table}")) for table in tables}


@NEEDS_POSTGRESQL
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(UNITS, max_size=12), min_size=1, max_size=3), st.lists(TEXTS, min_size=1))
async def test_both_kinds_of_state_give_the_same_answers(
    database_url: str,
    tmp_path: Path,
    batches: list[list[TranslationUnit]],
    texts: list[str],
) -> None:
    answers = []
    for place in (str(tmp_path), database_url):
        state = open_state(place)
        memories = TranslationMemories(state)
        memory = await memories.create("", "team")
        answer: list[object] = [
            [await memories.add_units(memory.import_job, batch) for batch in batches]
        ]
        await memories.complete_import(memory.import_job, "en")
        for language in ("fr", "pt"):
            for threshold in (50, 60, 75, 100):
                use = MemoryUse("", memory.id, language, threshold)
                answer.append(await memories.matches(use, "en", texts))
        memory = await memories.get("", memory.id)
        answer.append((memory.targets, memory.num_units))
        for text in ("", "DOG", "é", texts[0]):
            for is_case_sensitive in (True, False):
                page = await memories.list_units(memory.number, 0, 5, text, is_case_sensitive)
                answer.append([stored.unit for stored in page])
        answers.append(answer)
        state.close()
    assert answers[0] == answers[1]


async def test_texts_that_no_database_holds_match_nothing_else(state: State) -> None:
    memories = TranslationMemories(state)
    identity = await fill(memories, [unit("A small dog runs."), unit("A cat.")])
    texts = [
        "A cat.\0",
        "A small \0 dog runs.",
        "A small \ud800 runs.",
        "\ud800",
        "\0",
        "",
        "A cat.",
    ]
    matches = await memories.matches(MemoryUse("", identity, "fr", 60), "en", texts)
    assert [match and (match.score, match.source) for match in matches] == [
        (75, "A cat."),
        (83, "A small dog runs."),
        (80, "A small dog runs."),
        None,
        None,
        None,
        (100, "A cat."),
    ]
    [memory] = await memories.list_memories("")
    assert await memories.list_units(memory.number, contains="\0\ud800") == []
    for name in ("\0", "\ud800", f"{identity}\0"):
        with pytest.raises(TranslationMemoryNotFound):
            await memories.get("", name)
        with pytest.raises(TranslationMemoryNotFound):
            await memories.get_by_secret(identity, name)


async def test_segments_of_any_length_are_found(state: State) -> None:
    """Longer than what an index of PostgreSQL holds, and equal for longer than ours has."""
    letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz中犬 ", k=20_000)
    long = " ".join("".join(letters).split())
    memories = TranslationMemories(state)
    identity = await fill(memories, [unit(long, "un")], [unit(f"{long}.", "deux")])
    matches = await memories.matches(MemoryUse("", identity, "fr"), "en", [long, f"{long}."])
    assert [match and (match.score, match.target) for match in matches] == [
        (100, "un"),
        (100, "deux"),
    ]


async def test_a_lookup_in_sqlite_reads_a_few_units(tmp_path: Path) -> None:
    memories = TranslationMemories(open_state(tmp_path))
    identity = await fill(memories, [unit(f"A dog {number}x.") for number in range(3_000)])
    num_steps = 0

    def count() -> int:
        nonlocal num_steps
        num_steps += 10
        return 0

    def trace(connection: Connection) -> None:
        assert isinstance(connection, SqliteConnection)
        connection._connection.set_progress_handler(count, 10)

    await memories._database.run(trace)
    for texts in (["A dog 7x."], ["A dog 7x.", "A cat 8x."]):
        await memories.matches(MemoryUse("", identity, "fr", 100), "en", texts)
    assert 0 < num_steps < 500


async def test_a_filter_goes_over_all_units(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_BATCH_SCANNED", 10)
    memories = TranslationMemories(state)
    await fill(memories, [unit(f"Dog {number}", f"Chien {number % 7}") for number in range(95)])
    [memory] = await memories.list_memories("")
    found, after = [], 0
    while page := await memories.list_units(memory.number, after, 4, "CHIEN 3"):
        found += [stored.unit.source.text for stored in page]
        after = page[-1].number
    assert found == [f"Dog {number}" for number in range(95) if number % 7 == 3]


async def test_servers_fill_and_remove_memories_at_once(
    state_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_BATCH_UNITS", 20)
    monkeypatch.setattr(store, "_BATCH_WORDS", 50)
    states = [open_state(state_place) for _ in range(3)]
    servers = [TranslationMemories(state) for state in states]
    removed = [await servers[0].create("", f"removed {number}") for number in range(4)]
    again = await servers[0].create("", "again")
    batch = [unit(f"A dog runs to place {number} of town {number % 5}.") for number in range(70)]
    for memory in (*removed, again):
        await servers[0].add_units(memory.import_job, batch)

    # Each server begins the same import, and a stale one still writes to it.
    await asyncio.gather(*(server.begin_import(again.import_job) for server in servers))
    results = await asyncio.gather(
        *(server.add_units(again.import_job, batch) for server in servers),
        *(servers[0].discard_import(memory.import_job) for memory in removed),
        *(server._remove_marked() for server in servers),
        *(servers[2].add_units(memory.import_job, batch) for memory in removed),
        return_exceptions=True,
    )
    assert {type(result) for result in results} <= {int, type(None), TranslationMemoryNotFound}
    assert sorted(result for result in results[:3] if isinstance(result, int)) == [0, 70, 70]
    await asyncio.gather(*(server._remove_marked() for server in servers))
    for server in servers:
        if server._removal is not None:
            await server._removal

    rows = await servers[0]._database.run(num_rows)
    assert (rows["memories"], rows["units"], rows["targets"]) == (1, 70, 70)
    await servers[1].complete_import(again.import_job, "en")
    for server in servers:
        [match] = await server.matches(
            MemoryUse("", again.id, "fr"), "en", ["A dog runs to place 5 of town 0."]
        )
        assert match is not None and match.score >= 99
    await servers[2].remove("", again.id)
    assert servers[2]._removal is not None
    await servers[2]._removal
    assert not any((await servers[0]._database.run(num_rows)).values())
    for state in states:
        state.close()


async def test_a_memory_that_is_being_deleted_gets_no_units(state: State) -> None:
    memories = TranslationMemories(state)
    memory = await memories.create("", "team")
    await memories._database.run(store.mark_removed, memory.number)
    with pytest.raises(TranslationMemoryNotFound):
        await memories.add_units(memory.import_job, [unit("A dog.")])
    await memories._remove_marked()
    assert not any((await memories._database.run(num_rows)).values())


async def test_a_database_of_an_older_version_answers(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "memories.sqlite3")
    database.executescript(OLD_SCHEMA)
    database.execute(
        "INSERT INTO memories VALUES (1, 'id', '', 'team', '2026-11-28T00:00:00.000Z',"
        " '2026-11-28T00:00:00.000Z', 'secret', 'job', 'complete', 'en', '[\"fr\"]', 2)"
    )
    for number, source in enumerate(["A small dog runs.", "A cat."], 1):
        ids = word_ids(source)
        values = (number, 1, source, ids.tobytes(), "2026-11-28T00:00:00.000Z")
        database.execute("INSERT INTO units VALUES (?, ?, ?, NULL, ?, ?)", values)
        database.execute("INSERT INTO targets VALUES (?, 'fr', ?, NULL)", (number, source.upper()))
        rows = [(1, word, len(ids), number) for word in {*ids}]
        database.executemany("INSERT INTO words VALUES (?, ?, ?, ?)", rows)
    database.commit()
    database.close()

    memories = TranslationMemories(open_state(tmp_path))
    use = MemoryUse("", "id", "fr", 75)
    texts = ["A cat.", "A small dog barks.", "Nothing."]
    same, similar, other = await memories.matches(use, "en", texts)
    assert same is not None and (same.score, same.target) == (100, "A CAT.")
    assert similar is not None and (similar.score, similar.target) == (80, "A SMALL DOG RUNS.")
    assert other is None
    assert [stored.unit for stored in await memories.list_units(1, contains="cat")] == [
        unit("A cat.")
    ]
    counts = await memories._database.run(num_rows)
    assert counts["word_counts"] == len({*word_ids("A small dog runs."), *word_ids("A cat.")})
    identity = await fill(memories, [unit("A cow."), unit("A cow.")])
    await memories.remove("", "id")
    assert memories._removal is not None
    await memories._removal
    assert [memory.id for memory in await memories.list_memories("")] == [identity]

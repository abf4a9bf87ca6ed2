"""The unit that is most like a segment: as a comparison with all units finds it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.errors import TranslationMemoryNotFound
from serving.pipelines.translation.job import MemoryUse
from serving.storage.database import Connection
from serving.storage.state import State
from serving.translation_memory.similarity import percent, replace_numbers, word_ids
from serving.translation_memory.store import MemoryState, TranslationMemories
from serving.translation_memory.tmx import MemorySegment, TranslationUnit

WORDS = st.lists(st.sampled_from(["the", "a", "of", "dog", "cat", "runs", ".", ","]), max_size=9)


def unit(source: str, target: str = "", language: str = "fr") -> TranslationUnit:
    return TranslationUnit(
        MemorySegment(source), {language: MemorySegment(target or source.upper())}
    )


async def filled(
    state: State, *units: TranslationUnit, owner: str = ""
) -> tuple[TranslationMemories, str]:
    memories = TranslationMemories(state)
    memory = await memories.create(owner, "team")
    await memories.add_units(memory.import_job, units)
    await memories.complete_import(memory.import_job, "en")
    return memories, memory.id


def edit_distance(one: list[str], other: list[str]) -> int:
    """Wagner and Fischer (1974), cell by cell."""
    before = [*range(len(other) + 1)]
    for number, word in enumerate(one, 1):
        row = [number]
        for place, other_word in enumerate(other, 1):
            row.append(
                min(row[-1] + 1, before[place] + 1, before[place - 1] + (word != other_word))
            )
        before = row
    return before[-1]


def naive_percent(one: list[str], other: list[str]) -> int:
    longer = max(len(one), len(other))
    return min(100 * (longer - edit_distance(one, other)) // longer if longer else 0, 99)


@given(WORDS, WORDS, st.integers(0, 100))
def test_percent_is_the_edit_distance_of_words(
    one: list[str], other: list[str], least: int
) -> None:
    expected = naive_percent(one, other)
    score = percent(word_ids(" ".join(one)), word_ids(" ".join(other)), least)
    assert score == (expected if expected >= least else 0) or (least == 100 and score in (0, 99))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(WORDS.filter(len), min_size=1, max_size=30), WORDS.filter(len))
async def test_no_match_is_missed(state: State, stored: list[list[str]], wanted: list[str]) -> None:
    sources = {" ".join(words) for words in stored}
    memories, identity = await filled(state, *map(unit, sources))
    text = " ".join(wanted)
    scores = {source: naive_percent(wanted, source.split()) for source in sources}
    if text in scores:
        scores[text] = 100
    best = max(scores.values())

    for threshold in (50, 75, 90, 100):
        use = MemoryUse("", identity, "fr", threshold)
        [match] = await memories.matches(use, "en", [text])
        if best < threshold:
            assert match is None
        else:
            assert match is not None
            assert (match.score, scores[match.source]) == (best, best)


async def test_numbers_of_the_text_are_put_in(state: State) -> None:
    memories, identity = await filled(
        state, unit("See page 12 of 30.", "Voir page 12 sur 30."), unit("Version 2", "Deux")
    )
    use = MemoryUse("", identity, "FR", 75)
    [page, same, other] = await memories.matches(
        use, "en-GB", ["See page 7 of 9.", "See page 12 of 30.", "Version 3"]
    )
    assert page is not None and (page.score, page.target) == (99, "Voir page 7 sur 9.")
    assert same is not None and (same.score, same.target) == (100, "Voir page 12 sur 30.")
    assert other is None  # half of it differs: its number cannot be put in


@pytest.mark.parametrize(
    ("text", "source", "translation", "expected"),
    [
        ("1,500 items", "2,000 items", "2 000 articles", "1 500 articles"),
        ("from 1 to 2", "from 2 to 1", "de 2 à 1", "de 1 à 2"),
        ("3 of 3", "2 of 4", "2 sur 4", "3 sur 3"),
        ("2 of 4", "3 of 3", "3 sur 3", None),
        ("page 3", "page two", "page deux", None),
        ("page 3", "page 2", "page deux", None),
    ],
)
def test_a_translation_with_other_numbers(
    text: str, source: str, translation: str, expected: str | None
) -> None:
    assert replace_numbers(text, source, translation) == expected


async def test_memories_of_other_keys_and_unfinished_ones_are_invisible(state: State) -> None:
    memories, identity = await filled(state, unit("A dog."), owner="ann")
    begun = await memories.create("ann", "begun")
    assert [memory.id for memory in await memories.list_memories("ann")] == [identity]
    assert await memories.list_memories("bob") == []
    for owner, each in (("bob", identity), ("ann", begun.id), ("ann", "none")):
        with pytest.raises(TranslationMemoryNotFound):
            await memories.get(owner, each)


async def test_other_languages_match_nothing(state: State) -> None:
    memories, identity = await filled(state, unit("A dog."))
    for source, target in (("de", "fr"), ("en", "de")):
        assert await memories.matches(MemoryUse("", identity, target), source, ["A dog."]) == [None]


async def test_later_targets_replace_those_before(state: State) -> None:
    memories = TranslationMemories(state)
    job = (await memories.create("", "team")).import_job
    units = [unit("A dog.", "Un."), unit("A dog.", "Un."), unit("A dog.", "Deux.")]
    assert await memories.add_units(job, units) == 1  # the second changes nothing
    await memories.add_units(job, [unit("A dog.", "Ein Hund.", "de")])
    await memories.complete_import(job, "en")
    [memory] = await memories.list_memories("")
    assert (memory.num_units, memory.targets) == (1, ("de", "fr"))
    [match] = await memories.matches(MemoryUse("", memory.id, "fr"), "en", ["A dog."])
    assert match is not None and match.target == "Deux."


async def test_an_import_that_begins_again_leaves_nothing_of_before(state: State) -> None:
    memories = TranslationMemories(state)
    job = (await memories.create("", "team")).import_job
    await memories.add_units(job, [unit(f"Dog {word}.") for word in "abcdefgh"])
    await memories.begin_import(job)
    await memories.add_units(job, [unit("A cat.")])
    await memories.complete_import(job, "en")
    [memory] = await memories.list_memories("")
    assert [stored.unit for stored in await memories.list_units(memory.number)] == [unit("A cat.")]
    use = MemoryUse("", memory.id, "fr", 50)
    assert await memories.matches(use, "en", ["Dog a."]) == [None]


async def test_a_removed_memory_is_gone_at_once(state: State) -> None:
    memories, identity = await filled(state, *(unit(f"Dog {word}.") for word in "abcdefgh"))
    await memories.remove("", identity)
    assert await memories.list_memories("") == []
    assert memories._removal is not None
    await memories._removal
    assert await memories._database.run(_num_rows) == 0


def _num_rows(connection: Connection) -> int:
    tables = ("memories", "units", "targets", "words", "word_counts")
    return sum(len(connection.rows(f"SELECT * FROM {table}")) for table in tables)


async def test_pages_and_their_filter(state: State) -> None:
    units = [unit("A dog.", "Un chien."), unit("A CAT.", "Été."), unit("A cow.", "Une vache.")]
    memories, identity = await filled(state, *units)
    memory = await memories.get("", identity)
    assert memory.state is MemoryState.COMPLETE
    first, second = await memories.list_units(memory.number, count=2)
    assert [stored.unit for stored in (first, second)] == units[:2]
    assert [
        stored.unit for stored in await memories.list_units(memory.number, second.number)
    ] == units[2:]

    async def found(text: str, is_case_sensitive: bool) -> list[TranslationUnit]:
        page = await memories.list_units(memory.number, 0, 9, text, is_case_sensitive)
        return [stored.unit for stored in page]

    assert await found("cat", False) == await found("été", False) == [units[1]]
    assert await found("cat", True) == await found("%", False) == []

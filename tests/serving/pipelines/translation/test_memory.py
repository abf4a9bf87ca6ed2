"""Segments that a translation memory answers: their words, their tags, and what is left to the
model, whose French is the English in capitals.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from serving.errors import RequestError
from serving.pipelines.translation.job import (
    GlossaryEntry,
    MemoryUse,
    SegmentOrigin,
    Translation,
    TranslationDelta,
    TranslationJob,
)
from serving.pipelines.translation.memory import InlineCode, MemoryMatch, SegmentPart
from serving.text.markup.tokens import Markup, MarkupKind, Role
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import FakeEngine, shouting_translator

USE = MemoryUse("ann", "team", "fr")
HTML, XML = Markup(MarkupKind.HTML), Markup(MarkupKind.XML)
BOLD = InlineCode(Role.OPEN, "pair 1"), InlineCode(Role.CLOSE, "pair 1")
IMAGE = InlineCode(Role.POINT, "2")


class Stored:
    """A memory of a few units."""

    def __init__(self, *matches: MemoryMatch) -> None:
        self._matches: Mapping[str, MemoryMatch] = {match.source: match for match in matches}

    async def matches(
        self, use: MemoryUse, source: str, texts: Sequence[str]
    ) -> list[MemoryMatch | None]:
        assert (use.owner, use.id, source) == ("ann", "team", "en")
        matches = (self._matches.get(" ".join(text.split())) for text in texts)
        return [match if match and match.score >= use.threshold else None for match in matches]


def unit_of(source: str, target: str, score: int = 100) -> MemoryMatch:
    return MemoryMatch(score, source, target)


def unit_with_codes(
    source: Sequence[SegmentPart], target: Sequence[SegmentPart], score: int = 100
) -> MemoryMatch:
    read, written = (
        "".join(part for part in side if isinstance(part, str)) for side in (source, target)
    )
    return MemoryMatch(score, read, written, tuple(source), tuple(target))


async def translate(
    tokenizer: Tokenizer, text: str, *matches: MemoryMatch, **fields: Any
) -> tuple[str, tuple[SegmentOrigin, ...], FakeEngine]:
    """Return a translation, where it came from, and the engine; streamed it is the same."""
    pipeline, engine = shouting_translator(tokenizer, memories=Stored(*matches))
    job = TranslationJob("job", (text,), "en", "fr", memory=USE, protection=True, **fields)
    streamed = [item async for item in pipeline.stream(job)]
    engine.requests.clear()
    whole = await pipeline.run(job)
    assert streamed[-1] == whole
    assert isinstance(whole, Translation)
    deltas = [item.piece for item in streamed if isinstance(item, TranslationDelta)]
    assert "".join(deltas) == whole.texts[0]
    return whole.texts[0], whole.renderings[0][0].origins, engine


async def test_a_known_text_needs_no_model(tokenizer: Tokenizer) -> None:
    unit = unit_of("A dog. A cat.", "Deux bêtes.")
    text, origins, engine = await translate(tokenizer, " A dog.\nA cat. ", unit)
    assert text == " Deux bêtes. "
    assert origins == (SegmentOrigin("A dog.\nA cat.", "Deux bêtes.", 100),)
    assert engine.requests == []


async def test_known_segments_stand_among_others(tokenizer: Tokenizer) -> None:
    unit = unit_of("A cat.", "Un chat.", 80)
    text, origins, engine = await translate(tokenizer, "A dog. A cat. A cow.", unit)
    assert text == "A DOG. Un chat. A COW."
    assert [origin.memory_score for origin in origins] == [None, 80, None]
    assert len(engine.requests) == 2


async def test_texts_of_a_list_keep_their_order(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer, memories=Stored(unit_of("b", "Bé")))
    job = TranslationJob("job", ("a", "b", "c", "b"), "en", "fr", memory=USE)
    assert (await pipeline.run(job)).texts == ("A", "Bé", "C", "Bé")
    pieces: dict[int, str] = {}
    async for item in pipeline.stream(job):
        if isinstance(item, TranslationDelta):
            pieces[item.text] = pieces.get(item.text, "") + item.piece
    assert pieces == {0: "A", 1: "Bé", 2: "C", 3: "Bé"}


async def test_the_threshold_decides(tokenizer: Tokenizer) -> None:
    text, _, _ = await translate(tokenizer, "A cat.", unit_of("A cat.", "Un chat.", 74))
    assert text == "A CAT."


async def test_a_memory_comes_before_a_glossary(tokenizer: Tokenizer) -> None:
    entry = GlossaryEntry("cat", ("minou",))
    unit = unit_of("A cat.", "Un chat.", 90)
    text, _, _ = await translate(tokenizer, "A cat.", unit, glossary=(entry,))
    assert text == "Un chat."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Press <b>OK</b> now.", "Maintenant, <b>OK</b> !"),
        ("Press <i>OK</i> now.", "Maintenant, <i>OK</i> !"),
        ("<p>Press <b>OK</b> now.</p><p>Go &amp; see.</p>", None),
    ],
)
async def test_tags_stand_as_in_the_unit(
    tokenizer: Tokenizer, text: str, expected: str | None
) -> None:
    opened, closed = BOLD
    unit = unit_with_codes(
        ("Press ", opened, "OK", closed, " now."), ("Maintenant, ", opened, "OK", closed, " !")
    )
    go = unit_of("Go & see.", "Allez & <voyez>.", 99)
    texts, _, engine = await translate(tokenizer, text, unit, go, markup=HTML)
    whole = "<p>Maintenant, <b>OK</b> !</p><p>Allez &amp; &lt;voyez&gt;.</p>"
    assert texts == (expected or whole)
    assert engine.requests == []


async def test_tags_in_other_places_are_placed_by_attention(tokenizer: Tokenizer) -> None:
    """The fake attends to the source token of its own number."""
    opened, closed = BOLD
    unit = unit_with_codes(("One ", opened, "two", closed), ("Un ", opened, "deux", closed))
    text, origins, engine = await translate(tokenizer, "<b>One</b> two", unit, markup=XML)
    assert text == "<b>Un</b> deux"
    assert [origin.memory_score for origin in origins] == [100]
    [request] = engine.requests
    assert request.max_new_tokens == 0
    assert tokenizer.decode(request.forced_ids[:-1]) == "Un deux"


async def test_without_attention_the_model_translates_text_with_other_tags(
    tokenizer: Tokenizer,
) -> None:
    pipeline, _ = shouting_translator(
        tokenizer, memories=Stored(unit_of("One two", "Un deux")), num_heads=0
    )
    job = TranslationJob("job", ("<b>One</b> two", "One two"), "en", "fr", memory=USE, markup=XML)
    assert (await pipeline.run(job)).texts == ("<b>ONE</b> TWO", "Un deux")


@pytest.mark.parametrize(
    "target",
    [
        ("deux ", BOLD[1], "un", BOLD[0]),  # closes before it opens
        ("un ", BOLD[0], "deux"),  # does not close
        ("un ", BOLD[0], IMAGE, "deux", BOLD[1]),  # has a tag that the source has not
    ],
)
async def test_units_with_broken_tags_are_not_written_so(
    tokenizer: Tokenizer, target: tuple[SegmentPart, ...]
) -> None:
    unit = unit_with_codes(("one ", BOLD[0], "two", BOLD[1]), target)
    text, _, _ = await translate(tokenizer, "one <b>two</b>", unit, markup=XML)
    assert text.count("<b>") == text.count("</b>") == 1
    assert text.index("<b>") < text.index("</b>")


async def test_numbers_and_addresses_are_those_of_the_unit(tokenizer: Tokenizer) -> None:
    source = "See https://a.example now, 3 times."
    unit = unit_of(source, "Voir https://b.example, 4 fois.", 95)
    text, _, _ = await translate(tokenizer, source, unit)
    assert text == "Voir https://b.example, 4 fois."


@pytest.mark.parametrize(
    "field",
    [{"returns_alignments": True}, {"returns_scores": True}, {"target_prefix": "A"}],
)
async def test_what_only_a_model_can_tell_is_refused(
    tokenizer: Tokenizer, field: dict[str, Any]
) -> None:
    pipeline, _ = shouting_translator(tokenizer, memories=Stored())
    job = TranslationJob("job", ("a",), "en", "fr", memory=USE, **field)
    with pytest.raises(RequestError, match="cannot be combined with a translation memory"):
        await pipeline.run(job)

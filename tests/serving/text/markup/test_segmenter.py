"""Texts without marks take a short way, which finds what the long one finds."""

import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.markup.known_words import KnownWords
from serving.text.markup.protection import Protection
from serving.text.markup.segmenter import MarkupSegmenter
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.sentences import Splitting
from serving.text.spans import Span

SENTENCES = Path(__file__).parents[4] / "loadtest/generator/sentences.txt.xz"
KNOWN = KnownWords(
    [
        "the",
        "a",
        "dog",
        "dogs",
        "runs",
        "barks",
        "i",
        "he",
        "she",
        "is",
        "not",
        "NASA",
        "Tom",
        "in",
        "It's",
    ]
)
PIECES = [
    *("the dog", "A dog runs", "dogs", "Tom", "Zebulon", "NASA", "IT RUNS IN", "ABC", "É", "l'été"),
    *(" ", "  ", "\n", "\t", "\u00a0", ". ", "? ", "!", "...", ".", ",", "-", "--", "- ", "'", "’"),
    *('"', "“", "(", ")", "()", "[x]", "<b>", "&amp;", "5", "*", "_", "`", "#", ":", ":)", "/"),
    *("%", "№", "é\u0301", "ß", "Œ", "×", "ſ", "日本", "ты", "\u200b", "\x00", "\u2028", "p. IX"),
]
TEXTS = st.lists(
    st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=12
).map("".join)


def reader(
    source: str = "en", splitting: Splitting = Splitting.SENTENCES, longest: int = 25
) -> MarkupSegmenter:
    protection = Protection(None, True, source, "fr", KNOWN)
    return MarkupSegmenter(None, protection, splitting, lambda text: len(text) <= longest)


def holds(reader: MarkupSegmenter, text: str) -> bool:
    """Check a text; return whether it takes the short way."""
    plain, marked = reader.segment_plain_text(text), reader.segment(text)
    if plain is None:
        return False
    assert plain == marked.plain
    for segment in marked.segments:
        assert segment.is_plain_text and not segment.needs_word_alignment and not segment.references
    return True


@given(text=TEXTS, source=st.sampled_from(["en", "de", "fr"]), splitting=st.sampled_from(Splitting))
def test_both_ways_find_the_same_in_any_text(text: str, source: str, splitting: Splitting) -> None:
    holds(reader(source, splitting), text)


def test_both_ways_find_the_same_in_real_text_and_most_take_the_short_one() -> None:
    lines = lzma.decompress(SENTENCES.read_bytes()).decode().splitlines()
    words = {word.strip(".,!?\"'()") for line in lines for word in line.split()}
    protection = Protection(None, True, "en", "fr", KnownWords(words))
    everything = MarkupSegmenter(
        None, protection, Splitting.SENTENCES, lambda text: len(text) < 150
    )
    assert sum(holds(everything, line) for line in lines) > len(lines) / 2


@pytest.mark.parametrize(
    "text",
    [" ", "the dog ", "- the dog", "the  dog", "THE DOG RUNS", "Zebulon runs", "a.b", "a) b"],
)
def test_what_may_have_marks_takes_the_long_way(text: str) -> None:
    assert reader().segment_plain_text(text) is None


def test_what_is_not_all_protected_takes_the_long_way() -> None:
    html = Markup(MarkupKind.HTML)
    splitting = Splitting.SENTENCES
    whole, bare = (Protection(None, protects_all, "en", "fr") for protects_all in (True, False))
    assert MarkupSegmenter(html, whole, splitting, bool).segment_plain_text("the dog") is None
    assert MarkupSegmenter(None, bare, splitting, bool).segment_plain_text("the dog") is None
    terms = Protection(None, True, "en", "fr", terms=lambda text: [Span(0, 3)])
    assert MarkupSegmenter(None, terms, splitting, bool).segment_plain_text("the dog") is None

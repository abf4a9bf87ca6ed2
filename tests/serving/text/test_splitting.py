"""Splitting: every segment fits, and the text comes back to the last blank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.sentences import split_text

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from(" \n\t.!?,;\r\u0301"))


def fits_80_characters(text: str) -> bool:
    return len(text) <= 80


@given(text=TEXT)
def test_its_own_segments_give_the_text_back(text: str) -> None:
    layout = split_text(text, "en", lambda segment: len(segment) <= 5)

    assert layout.fill(layout.segments) == text
    assert all(segment == segment.strip() != "" for segment in layout.segments)
    assert all(len(segment) <= 5 for segment in layout.segments)


def test_sentences_lines_and_paragraphs() -> None:
    text = " Hello Mr. Smith.  How are you?\n\n- a list\n\t- of two\r\n"

    layout = split_text(text, "en", fits_80_characters)

    assert layout.segments == ("Hello Mr. Smith.", "How are you?", "- a list", "- of two")
    assert layout.fill(["Bonjour.", "Ça va ?", "- une", "- deux"]) == (
        " Bonjour.  Ça va ?\n\n- une\n\t- deux\r\n"
    )


@pytest.mark.parametrize("blank", ["\N{NO-BREAK SPACE}", "\N{THIN SPACE}"])
def test_blanks_of_several_bytes_are_blanks(blank: str) -> None:
    text = f"{blank}It is plan A{blank}. We go.{blank}"

    layout = split_text(text, "en", fits_80_characters)

    assert layout.segments[0].startswith("It is plan A")
    assert layout.fill(layout.segments) == text


def test_a_panic_of_the_sentence_finder_leaves_the_line_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class PanicException(BaseException):
        pass

    def segment(language: str, text: str) -> list[str]:
        raise PanicException

    monkeypatch.setattr("sentencex.segment", segment)

    assert split_text("One. Two.", "en", fits_80_characters).segments == ("One. Two.",)


def test_no_long_line_reaches_the_sentence_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def segment(language: str, text: str) -> list[str]:
        given.append(text)
        return [text]

    monkeypatch.setattr("sentencex.segment", segment)

    split_text("\u201ca. " * 5_000, "en", fits_80_characters)

    assert max(map(len, given)) <= 5_001


@pytest.mark.parametrize("text", ["", " ", "\n\n\t "])
def test_text_without_words_has_no_segments(text: str) -> None:
    layout = split_text(text, "en", fits_80_characters)

    assert layout.segments == ()
    assert layout.fill([]) == text


def test_a_long_sentence_is_cut_after_a_clause() -> None:
    text = (
        "the dog ran, and the cat slept in the sun; but the bird, high above, saw it all and sang"
    )

    layout = split_text(text, "en", fits_80_characters)

    assert layout.segments[0].endswith("sun;")
    assert len(layout.segments) == 2


def test_a_long_word_is_cut_between_characters() -> None:
    layout = split_text("e\u0301" * 81, "en", fits_80_characters)

    assert all(segment[0] == "e" for segment in layout.segments)
    assert "".join(layout.segments) == "e\u0301" * 81

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
    lines: list[str] = []

    def segment(language: str, text: str) -> list[str]:
        lines.append(text)
        return [text]

    monkeypatch.setattr("sentencex.segment", segment)

    split_text("\u201ca. " * 5_000, "en", fits_80_characters)

    assert max(map(len, lines)) <= 5_001


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


CUTS = [
    # text, language, what ends the first segment
    ("the dog ran in the park, the cat slept on the sofa", "en", "park,"),
    ("the dog ran in the park; the cat, who slept, was big", "en", "park;"),
    ("the dog ran in the park: the cat, who slept, was big", "en", "park:"),
    ("the dog ran in the park \u2013 the cat slept on a sofa", "en", "park \u2013"),
    ("the dog ran in the park - the cat slept on the sofa", "en", "park -"),
    ("the dog ran in the park and the cat slept on a sofa", "en", "park"),
    ("the dog ran in the park because a cat was on a sofa", "en", "park"),
    ("the dog ran in a park while the cat slept on a sofa", "en", "park"),
    ("le chien court dans un parc et le chat dort par ici", "fr", "parc"),
    ("le chien court dans un parc mais le chat dort ici !", "fr", "parc"),
    ("der Hund rennt im Park und die Katze schläft im Haus", "de", "Park"),
    ("el perro corre en el parque pero el gato duerme ahí", "es", "parque"),
    ("o cão corre no parque grande e o gato dorme na cama", "pt", "grande"),
    ("il cane corre nel parco e il gatto dorme sul divano", "it", "parco"),
    ("de hond rent in het park en de kat slaapt op de bank", "nl", "park"),
    ("собака бежит по парку и кошка спит на диване у окна", "ru", "парку"),
    ("it costs 3,000 or 12:30:45 in all, and the cat sleeps", "en", "all,"),
    ("the dog (a big, red, loud one) ran and the cat slept on", "en", "one)"),
    ("he said \u201cthe dog, the cat\u201d and went home; that is all", "en", "cat\u201d"),
    ("the dogs of the park of my town run in it all day long", "en", ""),
    ("狗在公园里跑来跑去，猫在沙发上睡觉，鸟在树上唱歌跳舞。", "zh", "，"),
    ("狗在公园里跑来跑去叫着；猫在沙发上睡觉，鸟在树上唱歌。", "zh", "；"),
]


@pytest.mark.parametrize(("text", "language", "end"), CUTS)
def test_a_long_sentence_is_cut_where_a_clause_ends(text: str, language: str, end: str) -> None:
    layout = split_text(text, language, lambda segment: len(segment) < len(text) * 3 // 4)

    assert layout.fill(layout.segments) == text
    assert len(layout.segments) == 2
    assert layout.segments[0].endswith(end)


def test_numbers_and_times_are_not_cut() -> None:
    text = "x 1,000,000,000 y 12:30:45 z " * 20
    layout = split_text(text, "en", lambda segment: len(segment) < 60)
    assert {word for part in layout.segments for word in part.split()} == {*text.split()}


def test_a_long_word_is_cut_between_characters() -> None:
    layout = split_text("e\u0301" * 81, "en", fits_80_characters)

    assert all(segment[0] == "e" for segment in layout.segments)
    assert "".join(layout.segments) == "e\u0301" * 81

"""The translations of parts of a sentence, as they stand within it."""

import pytest

from serving.text.formatting import (
    format_sentence_rest,
    format_sentence_start,
    is_unfinished_sentence,
    match_end_marks,
)


@pytest.mark.parametrize(
    ("segment", "gap", "is_cut"),
    [
        ("the dog runs,", " ", True),
        ("the dog runs;", " ", True),
        ("the dog runs", " ", True),
        ("the dog runs", "\u00a0", True),
        ("\u72d7\u8dd1\uff0c", "", True),
        ("the dog runs.", " ", False),
        ("the dog runs!\u201d", " ", False),
        ("the dog runs?)", " ", False),
        ("\u2018the dog runs.\u2019", " ", False),
        ("\u72d7\u8dd1\u3002", "", False),
        ("\u0915\u0941\u0924\u094d\u0924\u093e\u0964", " ", False),
        ("the dog runs", "\n", False),
        ("the dog runs", " <br> ", False),
    ],
)
def test_sentences_that_go_on(segment: str, gap: str, is_cut: bool) -> None:
    assert is_unfinished_sentence(segment, gap) is is_cut


@pytest.mark.parametrize(
    ("source", "translation", "language", "expected"),
    [
        ("the dog runs,", "Le chien court.", "fr", "Le chien court,"),
        ("the dog runs;", "Le chien court.", "fr", "Le chien court ;"),
        ("the dog runs;", "Le chien court ;", "fr", "Le chien court ;"),
        ("the dog runs;", "O c\u00e3o corre.", "pt", "O c\u00e3o corre;"),
        ("the dog runs", "Le chien court.", "fr", "Le chien court"),
        ("the dog runs", "Le chien court", "fr", "Le chien court"),
        ("the dog runs,", "Le chien court", "fr", "Le chien court,"),
        ("the dog runs,", "Le chien court ;", "fr", "Le chien court ;"),
        ("the dog runs,", "<b>Le chien court.</b>", "fr", "<b>Le chien court,</b>"),
        ("the dog runs:", "\u72d7\u8dd1\u3002", "zh", "\u72d7\u8dd1:"),
    ],
)
def test_the_beginning_ends_with_its_mark(
    source: str, translation: str, language: str, expected: str
) -> None:
    assert format_sentence_start(source, translation, language) == expected


@pytest.mark.parametrize(
    ("source", "translation", "language", "expected"),
    [
        ("the cat sleeps.", "Le chat dort.", "fr", "le chat dort."),
        ("The cat sleeps.", "Le chat dort.", "fr", "Le chat dort."),
        ("the cat sleeps.", "<b>Le chat</b> dort.", "fr", "<b>le chat</b> dort."),
        ("the cat sleeps.", "Die Katze schl\u00e4ft.", "de", "Die Katze schl\u00e4ft."),
        ("je dors.", "I sleep.", "en", "I sleep."),
        ("un chat dort.", "A cat sleeps.", "en", "a cat sleeps."),
        ("l'OTAN dort.", "NATO sleeps.", "en", "NATO sleeps."),
        ("12 cats sleep.", "12 chats dorment.", "fr", "12 chats dorment."),
        ("le chat", "\u732b", "zh", "\u732b"),
    ],
)
def test_the_rest_begins_small(source: str, translation: str, language: str, expected: str) -> None:
    assert format_sentence_rest(source, translation, language) == expected


@pytest.mark.parametrize(
    ("source", "translation", "written"),
    [
        ("The dog.", "Le chien", "Le chien."),
        ("The dog!!", "Le chien", "Le chien!!"),
        ("The dog", "Le chien.", "Le chien"),
        ("Hello", "Olá,", "Olá"),
        ("The dog?", "Le chien ?", "Le chien ?"),
    ],
)
def test_a_translation_ends_with_a_mark_where_its_source_does(
    source: str, translation: str, written: str
) -> None:
    assert match_end_marks(source, translation) == written


@pytest.mark.parametrize("translation", ["Le chien", "Le chien,", "Le chien.", "Le chien ;"])
def test_a_label_ends_with_its_mark(translation: str) -> None:
    assert format_sentence_start("The dog;", translation, "fr") == "Le chien ;"

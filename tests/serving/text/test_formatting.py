"""The outer form of a source, given to its translation."""

import pytest

from serving.text.formatting import format_like_source


@pytest.mark.parametrize(
    ("source", "translation", "formatted"),
    [
        ("a dog", "Un chien.", "un chien"),
        ("A dog.", "un chien", "Un chien."),
        ("A dog!", "Un chien !", "Un chien !"),
        ("A dog?", "Un chien.", "Un chien."),
        ("Open the door", "Ouvrez la porte !", "Ouvrez la porte"),
        ("Open (the door)", "Ouvrez (la porte).", "Ouvrez (la porte)"),
        ("Name:", "Nom.", "Nom."),
        ("Wait", "...", "..."),
        ("<b>a dog</b>", "<b>Un chien.</b>", "<b>un chien</b>"),
        ("  a dog \n", "  Un chien. \n", "  un chien \n"),
        ("3 dogs", "trois chiens", "trois chiens"),
        ("", "", ""),
        ("...", "Rien", "Rien..."),
    ],
)
def test_first_letter_and_last_marks(source: str, translation: str, formatted: str) -> None:
    assert format_like_source(source, translation) == formatted


@pytest.mark.parametrize("text", ["!" * 200_000 + "a", " " * 200_000 + "a", "<b>" * 60_000])
def test_long_runs_take_no_time(text: str) -> None:
    assert format_like_source(text, text) == text

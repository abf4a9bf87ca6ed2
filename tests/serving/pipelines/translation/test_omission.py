"""Translations in which words became nothing, and good ones that look alike."""

import pytest

from serving.pipelines.translation.omission import OmissionCheck

OMITTED = [
    ("Green Street", "Street"),
    ("Old Town", ""),
    ("Old Town", "54321"),
    ("Old Town", "- !"),
    ("Berlin office", "Berlin"),
    ("The Berlin office", "Berlin"),
    ("Attention Mr Smith", "Attention Smith"),
    ("Save file", "file"),
    ("fast progressive method", "fast progressive"),
    ("Hello", ""),
    ("a cat", "a"),
]
WHOLE = [
    ("Green Street", "rue Verte"),
    ("Green Street", "Green Street"),
    ("Old Town", "Altstadt"),
    ("The Internet", "Internet"),
    ("A radio", "radio"),
    ("of the Debian", "Debian"),
    ("Perl's", "Perl"),
    ("Debian documentation", "documentation Debian"),
    ("Berlin office", "bureau de Berlin"),
    ("Berlin office", "berlin"),  # not a copy
    ("table", "table"),
    ("My dog", "chien"),
    ("the red dog", "红狗"),
    ("红狗", "dog"),
]


@pytest.mark.parametrize(("source", "translation"), OMITTED)
def test_words_became_nothing(source: str, translation: str) -> None:
    assert OmissionCheck(source, "en").lacks_words(translation)


@pytest.mark.parametrize(("source", "translation"), WHOLE)
def test_words_were_translated(source: str, translation: str) -> None:
    assert not OmissionCheck(source, "en").lacks_words(translation)


@pytest.mark.parametrize(("source", "translation"), OMITTED)
def test_until_its_end_every_beginning_may_become_such(source: str, translation: str) -> None:
    words = OmissionCheck(source, "en")
    assert all(words.may_lack_words(translation[:end]) for end in range(len(translation) + 1))


@pytest.mark.parametrize(
    ("source", "translation", "has_all"),
    [
        ("Old Town", "vieille ville", True),
        ("Old Town", "vieil", False),
        ("Old Town", "en ville", False),
        ("Berlin office", "du bureau Berlin", True),
        ("Berlin office", "Berlin", False),
        ("the office", "bureau", True),
    ],
)
def test_a_second_translation_has_as_many_words(
    source: str, translation: str, has_all: bool
) -> None:
    assert OmissionCheck(source, "en").has_all_words(translation, "fr") is has_all


@pytest.mark.parametrize(
    ("text", "are_checked"),
    [("", False), ("12 - 3", False), ("one", True), ("w " * 8, True), ("w " * 9, False)],
)
def test_short_sources_with_words_are_checked(text: str, are_checked: bool) -> None:
    assert OmissionCheck(text, "en").is_needed is are_checked

"""Tests which names are taken for unknown to a model, and kept."""

import pytest

from serving.text.markup.known_words import KnownWords
from serving.text.markup.protection import Protection
from serving.text.markup.tokens import Role, text_tokens

KNOWN = KnownWords(
    [
        "i",
        "met",
        "in",
        "the",
        "at",
        "paul",
        "rose",
        "where's",
        "where",
        "is",
        "a",
        "new",
        "day",
        "o",
        "hello",
    ]
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("I met Kofi Okafor in Accra.", ["Kofi Okafor", "Accra"]),
        ("Okafor\u2019s day, O'Hara's day", ["Okafor", "O'Hara"]),
        ("Paul Okafor met Rose.", ["Okafor"]),
        ("Where's Noor? Hello, Noor", ["Noor", "Noor"]),
        ("Jean-Paul is new-Day", ["Jean-Paul"]),
        ("NATO met UNESCO at x", []),
        ("new-day kofi", []),
        ("Paul II met Rose XIV in a day", ["II", "XIV"]),
        ("I met Noor III", ["Noor III"]),
        ("Zoë  Žižek, Łódź", ["Zoë", "Žižek", "Łódź"]),
        ("", []),
    ],
)
def test_unknown_words_with_a_capital_are_names(text: str, names: list[str]) -> None:
    assert [text[span.start : span.end] for span in KNOWN.unknown_names(text)] == names


def non_translatables(
    text: str, source: str = "en", known_words: KnownWords | None = KNOWN
) -> list[str]:
    protection = Protection(None, True, source, "fr", known_words)
    tokens = protection.protect(text_tokens(text, False, True))
    return [token.raw for token in tokens if token.role is Role.NON_TRANSLATABLE]


def test_names_within_addresses_are_no_names_of_their_own() -> None:
    assert non_translatables("Kofi at Kofi.Okafor@b.org") == ["Kofi", "Kofi.Okafor@b.org"]


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("at p. 45, in ch. 3 and vol. IV.", ["p. 45", "ch. 3", "vol. IV"]),
        ("at Art. 12 in No. 7/B, figs. 2-4.", ["Art. 12", "No. 7/B", "figs. 2-4"]),
        ("in no. i met Paul", []),
    ],
)
def test_references_to_numbered_things_are_kept(text: str, references: list[str]) -> None:
    assert non_translatables(text) == references


def test_nothing_is_a_name_where_nouns_have_capitals_or_nothing_is_known() -> None:
    assert (
        non_translatables("Kofi", source="de") == non_translatables("Kofi", known_words=None) == []
    )

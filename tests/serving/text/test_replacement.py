"""Unknown words and placeholders come from the source, to where the attention points."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.alignment import TokenizedText
from serving.text.markup.placeholders import PLACEHOLDER
from serving.text.replacement import (
    placeholder_pattern,
    replace_placeholders,
    replace_unknown,
)

UNKNOWN = b""  # a special token


def text(*pieces: str) -> TokenizedText:
    return TokenizedText.from_pieces(piece.encode() for piece in pieces)


def pointing(*columns: int, width: int) -> np.ndarray:
    """Attention of one target token after the other, most of it on one source token."""
    attention = np.full((len(columns), width), 0.1 / (width - 1), np.float32)
    attention[np.arange(len(columns)), columns] = 0.9
    return attention


def without_unknown(pieces: list[bytes], source: TokenizedText, attention: np.ndarray) -> str:
    is_unknown = [piece in (UNKNOWN, b" <unk>") for piece in pieces]
    return b"".join(replace_unknown(pieces, is_unknown, attention, source)).decode()


def test_an_unknown_token_becomes_the_whole_word_it_attends_to() -> None:
    source = text("In", " Tō", "kyō", ",", " it", " rains", "")
    pieces = [b"A", UNKNOWN, b", il pleut"]
    attention = pointing(0, 2, 5, width=7)
    assert without_unknown(pieces, source, attention) == "A Tōkyō, il pleut"


def test_a_space_is_there_once() -> None:
    source = text("Ann", " waits")
    attention = pointing(0, 1, width=2)
    assert without_unknown([UNKNOWN, b" attend"], source, attention) == "Ann attend"
    attention = pointing(1, 0, 1, width=2)
    assert without_unknown([b"Oui ", UNKNOWN, b" !"], source, attention) == "Oui Ann !"
    assert without_unknown([b"Oui", b" <unk>", b" !"], source, attention) == "Oui Ann !"


def test_several_unknown_tokens_of_one_word_give_it_once() -> None:
    source = text("Li", "ba", " sings")
    pieces = [UNKNOWN, UNKNOWN, b" chante", UNKNOWN]
    assert without_unknown(pieces, source, pointing(0, 1, 2, 0, width=3)) == "Liba chante Liba"


def test_an_unknown_token_that_attends_to_no_word_stays() -> None:
    pieces = [b"a", b" <unk>"]
    assert without_unknown(pieces, text("", " "), np.ones((2, 2))) == "a <unk>"
    assert without_unknown(pieces, text("b", ""), np.array([[1.0, 0], [0, 1]])) == "a <unk>"


def test_a_lost_placeholder_takes_the_word_that_attends_to_it() -> None:
    source = text("Hello", " {", "name", "}", ", welcome", "")
    target = text("Bonjour", " nom", ", bien", "venue")
    attention = pointing(0, 2, 4, 4, width=6)
    replaced = replace_placeholders(target, source, attention, PLACEHOLDER)
    assert replaced == "Bonjour {name}, bienvenue"


def test_a_translated_placeholder_is_put_back_whole() -> None:
    source = text("Hello", " {", "name", "}")
    target = text("Bonjour", " {", "nom", "}", " !")
    attention = pointing(0, 1, 2, 3, 0, width=4)
    assert replace_placeholders(target, source, attention, PLACEHOLDER) == "Bonjour {name} !"
    source, target = text("Hello", " <<name>>"), text("Bonjour", " <<", "nom", ">>", " !")
    attention = pointing(0, 1, 1, 1, 0, width=2)
    names = placeholder_pattern(["<<name>>"])
    assert replace_placeholders(target, source, attention, names) == "Bonjour <<name>> !"


def test_placeholders_that_are_there_are_left_alone() -> None:
    source, target = text("%d", " of", " %s"), text("%s", " :", " %d")
    attention = pointing(0, 1, 2, width=3)
    assert replace_placeholders(target, source, attention, PLACEHOLDER) == "%s : %d"


def test_a_placeholder_that_no_word_attends_to_most_comes_last() -> None:
    source, target = text("Hello", " {name}"), text("Bon", "jour")
    assert (
        replace_placeholders(target, source, pointing(0, 0, width=2), PLACEHOLDER)
        == "Bonjour {name}"
    )
    assert replace_placeholders(text(""), source, np.ones((1, 2)), PLACEHOLDER) == "{name}"


def test_one_that_came_less_often_is_put_where_the_last_belongs() -> None:
    source = text("%s", " and", " %s")
    target = text("%s", " et", " lui")
    assert (
        replace_placeholders(target, source, pointing(0, 1, 2, width=3), PLACEHOLDER) == "%s et %s"
    )


def test_the_word_that_attends_most_gives_way_and_only_once() -> None:
    source, target = text("{a}", " {b}"), text("x", " y", " z")
    attention = np.array([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7]])
    assert replace_placeholders(target, source, attention, PLACEHOLDER) == "x {a} {b}"
    attention = np.array([[0.9, 0.1], [0.1, 0.0], [0.6, 0.4]])
    assert replace_placeholders(target, source, attention, PLACEHOLDER) == "{a} y z {b}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Hi {name}, {0} {{x.y}} ${var} {}", ["{name}", "{0}", "{{x.y}}", "${var}", "{}"]),
        ("%s %d%% %1$s %+05.2f %(who)s %@", ["%s", "%d%%", "%1$s", "%+05.2f", "%(who)s", "%@"]),
        ("<b>bold</b> <x1/> <a href='u'>", ["<b>", "</b>", "<x1/>", "<a href='u'>"]),
        ("3 < 4 > 2, 100 % sure, 50% of { this or that } and % percent", []),
    ],
)
def test_what_is_a_placeholder(source: str, expected: list[str]) -> None:
    assert PLACEHOLDER.findall(source) == expected


def test_named_placeholders_are_found_as_they_are_written() -> None:
    pattern = placeholder_pattern(["a.b", "a.b.c", ""])
    assert pattern.findall("a.b.c a.b axb") == ["a.b.c", "a.b"]
    assert placeholder_pattern([]).findall("anything") == []


PIECES = st.lists(st.sampled_from(["{a}", "{b}", " ", "un", " deux", ", ", "", "é{", "%s"]))


@given(PIECES, PIECES, st.integers(0, 1000))
def test_nothing_that_the_source_holds_is_lost(
    source: list[str], target: list[str], seed: int
) -> None:
    names = ["{a}", "{b}", "%s"]
    attention = np.random.default_rng(seed).random((len(target), len(source)))
    replaced = replace_placeholders(
        text(*target), text(*source), attention, placeholder_pattern(names)
    )
    for name in names:
        assert replaced.count(name) >= "".join(source).count(name)


@given(PIECES, st.integers(0, 1000))
def test_without_placeholders_the_target_is_as_it_was(target: list[str], seed: int) -> None:
    attention = np.random.default_rng(seed).random((len(target), 2))
    replaced = replace_placeholders(text(*target), text("plain", " words"), attention, PLACEHOLDER)
    assert replaced == "".join(target)


def test_a_pattern_of_ones_own_may_be_given() -> None:
    source, target = text("Dear", " NAME_1"), text("Cher", " NOM_1", ".")
    attention = pointing(0, 1, 0, width=2)
    pattern = re.compile(r"NAME_\d")
    assert replace_placeholders(target, source, attention, pattern) == "Cher NAME_1."

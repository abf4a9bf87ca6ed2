"""Wrapped lines are read as one sentence, and every line break comes back once."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.sentences import Splitting
from tests.serving.text.markup.fake_model import HTML, XML, at_random, by_table, layout, translate

FRENCH = {"white": "blanche", "house": "maison", "the": "la", "in": "dans"}
LINE = st.sampled_from(
    ["The dog runs in", "the garden.", "", "a house", "- milk", "**in** the", "is 5 m", "🙂", "Mr."]
)
ENDS = st.sampled_from(["\n", "\r\n", "\n  ", " \n"])


@pytest.mark.parametrize(
    ("text", "order", "expected"),
    [
        ("A dog is in\nthe house.", None, "A dog is dans\nla house."),
        ("A dog is in  \r\n  the house.", None, "A dog is dans  \r\n  la house."),
        ("x white house is\nin y z.", [0, 2, 1, 3, 4, 5, 6], "x maison blanche is\ndans y z."),
        ("Milk\nEggs", None, "Milk\nEggs"),
    ],
)
def test_a_break_stands_where_its_words_went(
    text: str, order: list[int] | None, expected: str
) -> None:
    assert translate(layout(text), by_table(FRENCH, order)) == expected


@pytest.mark.parametrize(
    ("splitting", "read"),
    [
        (Splitting.SENTENCES, ["A dog is in the house. Yes", "Milk"]),
        (Splitting.LINES, ["A dog is in", "the house. Yes", "Milk"]),
        (Splitting.NO_NEWLINES, ["A dog is in the house. Yes Milk"]),
    ],
)
def test_what_is_read(splitting: Splitting, read: list[str]) -> None:
    marked = layout("A dog is in\nthe house. Yes\nMilk", splitting=splitting)
    assert " ".join(segment.text for segment in marked.segments) == " ".join(read)
    assert translate(marked, by_table({})) == "A dog is in\nthe house. Yes\nMilk"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("A dog is in<br>the house.", ["A dog is in the house."]),
        ("A dog is in <br/>\n the house.", ["A dog is in the house."]),
        ("<b>A dog is<br>in</b> the house.", ["A dog is in the house."]),
        ("A dog is in</br>the house.", ["A dog is in the house."]),
        ("A dog runs.<br>A cat sleeps.", ["A dog runs.", "A cat sleeps."]),
        ("John Smith<br>12 Main Street<br>York", ["John Smith", "12 Main Street", "York"]),
        ("A dog is in<br><br>the house.", ["A dog is in", "the house."]),
    ],
)
def test_what_of_html_and_xml_is_read(text: str, read: list[str]) -> None:
    marked = layout(text, HTML)
    assert [segment.text for segment in marked.segments] == read
    assert len(re.findall("</?br/?>", translate(marked, by_table({})))) == text.count("br")
    marked = layout(re.sub("</?br>", "<br/>", text), XML)
    assert [segment.text for segment in marked.segments] == read


@given(
    st.lists(st.tuples(LINE, ENDS), max_size=8),
    st.integers(0, 1000),
    st.booleans(),
    st.booleans(),
    st.sampled_from(Splitting),
)
def test_a_translation_has_as_many_lines(
    lines: list[tuple[str, str]],
    seed: int,
    protection: bool,
    has_attention: bool,
    splitting: Splitting,
) -> None:
    text = "".join(line + end for line, end in lines)
    marked = layout(text, None, protection, splitting)
    translated = translate(marked, at_random(seed, has_attention))
    assert translated.count("\n") == text.count("\n")
    assert translated.count("\r\n") == text.count("\r\n")

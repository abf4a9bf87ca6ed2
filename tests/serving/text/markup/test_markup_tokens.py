"""The tokenizers of HTML and XML: tokens have their places, and joined they are the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.markup.html_tokens import (
    tag_attributes,
    tokenize_html,
    translatabilities,
    visible_text,
)
from serving.text.markup.xml_tokens import (
    XmlSyntaxError,
    XmlTokenKind,
    tokenize_xml,
    unescape_references,
)

PIECES = st.sampled_from(
    [
        *(
            "a dog",
            "é😀",
            " ",
            "&amp;",
            "<",
            ">",
            "</",
            "<p>",
            "</p>",
            "<br/>",
            "<b x='1>2'>",
            "</b>",
        ),
        *(
            "<!-- c -->",
            "<!--",
            "<!doctype html>",
            "<?php a > b ?>",
            "<%= a > b %>",
            "<% ",
            "%<a>d",
        ),
        *("<script>", "</script>", "<textarea>", "</TEXTAREA>", "<a href='x", "<plaintext>"),
        *("<code>", "</code>", "<i translate=yes>", "</i>", "<pre>", "</pre>"),
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_tokens_of_html_are_the_text(text: str) -> None:
    tokens = tokenize_html(text)

    assert "".join(text[token.start : token.end] for token in tokens) == text
    assert [token.start for token in tokens[1:]] == [token.end for token in tokens[:-1]]
    states = translatabilities(tokens)
    assert len(states) == len(tokens)
    for number, state in enumerate(states):
        assert state.element_end is None or number < state.element_end <= len(tokens)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a <b>c</b>", ["TEXT", "START_TAG", "TEXT", "END_TAG"]),
        ("<br/><x/><hr>", ["START_TAG", "EMPTY_TAG", "START_TAG"]),
        ("a < b <3 %<count>d", ["TEXT"]),
        ("%<b>d</b>", ["TEXT", "START_TAG", "TEXT", "END_TAG"]),
        ("<script>a<b></script>", ["START_TAG", "TEXT", "END_TAG"]),
        ("<title>a<b></title>", ["START_TAG", "TEXT", "END_TAG"]),
        ("<!-- a --><!doctype x><?php a ?></1>", ["COMMENT", "DOCTYPE", "TEMPLATE", "COMMENT"]),
        ("a<b c", ["TEXT", "UNFINISHED_TAG"]),
    ],
)
def test_kinds_of_tokens_of_html(text: str, kinds: list[str]) -> None:
    assert [token.kind.name for token in tokenize_html(text)] == kinds


def test_attributes_have_the_places_of_their_values() -> None:
    text = "x<A Alt='a &amp; b' title=c translate lang=\"\">"
    _, tag = tokenize_html(text)

    attributes = {attribute.name: attribute for attribute in tag_attributes(text, tag)}

    assert {name: attribute.value for name, attribute in attributes.items()} == {
        "alt": "a & b",
        "title": "c",
        "translate": None,
        "lang": "",
    }
    alt = attributes["alt"]
    assert (text[alt.start : alt.end], alt.quote) == ("a &amp; b", "'")
    assert tag.translate is True


def test_the_visible_text_of_an_element() -> None:
    text = "<code> a&nbsp;<b>b</b><br>c <!-- d --><style>e</style><%= f %></code>"

    assert visible_text(text, tokenize_html(text)) == "a b c <%= f %>"


XML_PIECES = st.sampled_from(
    [
        *(
            "a dog",
            "é😀",
            "\r\n",
            "&amp;",
            "&#233;",
            "<b/>",
            "<c x='1>2' y=\"é\"/>",
            "<!-- <a> -->",
        ),
        *("<![CDATA[a<b]]>", "<![CDATA[]]>", "<?x y?>", "<d>e<f></f></d>"),
    ]
)


@given(st.lists(XML_PIECES, max_size=20).map("".join))
def test_tokens_of_xml_are_the_text(content: str) -> None:
    text = f"<?xml version='1.0'?>\n<!-- é --><x:root>{content}</x:root >\n"

    tokens = tokenize_xml(text)

    assert "".join(token.raw(text) for token in tokens) == text
    assert [token.start for token in tokens[1:]] == [token.end for token in tokens[:-1]]
    num_ends = sum(token.kind is XmlTokenKind.END_TAG for token in tokens)
    assert num_ends == sum(token.kind is XmlTokenKind.START_TAG for token in tokens)


def test_tags_of_xml_have_names_and_attributes() -> None:
    text = '<a:b x="1&lt;2" y:z="é"/>'
    [tag] = tokenize_xml(text)

    assert (tag.kind, tag.name) == (XmlTokenKind.EMPTY_TAG, "a:b")
    assert tag.attributes == {"x": "1<2", "y:z": "é"}


def test_entities_that_a_document_declares_are_not_expanded() -> None:
    text = '<!DOCTYPE a [<!ENTITY b "boom">]><a>c&b;d</a>'

    read = [token.raw(text) for token in tokenize_xml(text) if token.kind is XmlTokenKind.TEXT]

    assert read == ["c", "d"]


@pytest.mark.parametrize(
    "text", ["", "a", "<a>", "<a></b>", "<a/><b/>", "<a>&b;</a>", "<a>\ud800</a>"]
)
def test_what_is_not_well_formed(text: str) -> None:
    with pytest.raises(XmlSyntaxError):
        tokenize_xml(text)


def test_references() -> None:
    assert unescape_references("&lt;&#233;&#x1F600;&quot;&amp;lt; & b") == '<é😀"&lt; & b'
    assert unescape_references("&#38;lt; &#x26;amp; &amp;#38;") == "&lt; &amp; &#38;"

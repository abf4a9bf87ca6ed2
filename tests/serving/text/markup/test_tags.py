"""Tags go where the words went that they held, by attention that points word to word."""

import re

import numpy as np
import pytest

from serving.errors import RequestError
from serving.text.markup.html_reader import read_html
from serving.text.markup.tokens import Markup, MarkupKind
from tests.serving.text.markup.fake_model import HTML, XML, at_random, by_table, layout, translate

FRENCH = {"red": "rouge", "car": "voiture", "the": "la", "house,": "maison,", "big": "grande"}


@pytest.mark.parametrize(
    ("text", "order", "expected"),
    [
        ("the <b>red car</b> x", [0, 2, 1, 3], "la <b>voiture rouge</b> x"),
        ("the <b>red</b> car x", [0, 2, 1, 3], "la voiture <b>rouge</b> x"),
        ("the <b>red <i>car</i></b> x", [0, 2, 1, 3], "la <b><i>voiture</i> rouge</b> x"),
        ("<b>red</b> <i>car</i>", [1, 0], "<i>voiture</i> <b>rouge</b>"),
        ("the big <b>house</b>, x", None, "la grande <b>maison</b>, x"),
        ("<b>the red car</b>", [2, 0, 1], "<b>voiture la rouge</b>"),
        ("the <b>red</b><img> car", [0, 2, 1], "la voiture <b>rouge</b><img>"),
        ("the <img>red car", [0, 2, 1], "la voiture <img>rouge"),
        ("the <img> red car", None, "la <img> rouge voiture"),
        ("the <b>red </b>car", None, "la <b>rouge </b>voiture"),
        ("the<b> red</b> car", None, "la<b> rouge</b> voiture"),
        ("the <b></b>red car", None, "la <b></b>rouge voiture"),
    ],
)
def test_tags_go_with_their_words(text: str, order: list[int] | None, expected: str) -> None:
    assert translate(layout(text, HTML), by_table(FRENCH, order)) == expected


@pytest.mark.parametrize(
    "text",
    [
        'x "<b>the</b>" x',
        'x <b>"the"</b> x',
        "x (<b>the</b>), x",
        "x <b>(the)</b>, x",
        "x <b>the</b>: x.",
        'x <a href="u">the house</a>!',
        "x «<b>the</b>» x",
    ],
)
@pytest.mark.parametrize("seed", range(8))
def test_quotes_and_brackets_stay_on_their_side_of_tags(text: str, seed: int) -> None:
    attention = np.random.default_rng(seed)

    def model(read: str) -> tuple[list[str], np.ndarray]:
        words = re.findall(r" ?(?:\w+|[^\w\s])", read)
        rows = np.eye(len(read.split(" ")))[np.cumsum([word[0] == " " for word in words])]
        return words, rows + attention.random(rows.shape) / 8

    assert translate(layout(text, HTML), model) == text


def test_a_tag_over_two_sentences_opens_in_one_and_closes_in_the_other() -> None:
    marked = layout("One <i>two. Three</i> four.", HTML)
    assert [segment.text for segment in marked.segments] == ["One two.", "Three four."]
    assert translate(marked, by_table({"Three": "Trois"})) == "One <i>two. Trois</i> four."


def test_references_and_spaces_are_as_they_were() -> None:
    text = "<p>\n  a &lt; b&nbsp;&eacute; \n</p>"
    assert translate(layout(text, HTML), by_table({"b\u00a0é": "é\u00a0& b"})) == (
        "<p>\n  a &lt; &eacute;&nbsp;&amp; b \n</p>"
    )


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<p>a <code>x = 1</code> b</p>", ["a %1 b"]),
        ('<p>a <span translate="no">x</span> b</p>', ["a %1 b"]),
        ('<p>a <b class="u notranslate v">x</b> b</p>', ["a %1 b"]),
        ("<p>a</p><div class=notranslate>x <div>y</div> z</div>b", ["a", "b"]),
        ("<pre>a\nb</pre>c\nd", ["c d"]),
        ('<pre translate="yes">a\nb</pre>c\nd', ["a", "b", "c d"]),
        ("<script>if (a<b) c</script>a<style>b</style> b<!-- c -->", ["a b"]),
        ("a < b <3 & c <d", ["a < b <3 & c <d"]),
        ("<title>a</title><ul><li>b<li>c</ul>d<br>e", ["a", "b", "c", "d", "e"]),
    ],
)
def test_what_of_html_is_read(text: str, read: list[str]) -> None:
    marked = layout(text, HTML)
    assert [segment.text for segment in marked.segments] == read
    assert len(translate(marked, at_random(3))) > 0


@pytest.mark.parametrize(
    ("markup", "read"),
    [
        (XML, ["a b c", "d", "e"]),
        (Markup(MarkupKind.XML, outline_detection=False), ["a b cde"]),
        (Markup(MarkupKind.XML, frozenset("b"), outline_detection=False), ["a", "b", "cde"]),
        (Markup(MarkupKind.XML, ignore_tags=frozenset("b")), ["a %1 c", "d", "e"]),
        (Markup(MarkupKind.XML, non_splitting_tags=frozenset("pq")), ["a b cde"]),
    ],
)
def test_what_of_xml_is_read(markup: Markup, read: list[str]) -> None:
    marked = layout("<p>a <b>b</b> c</p><q><r>d</r><s>e</s></q>", markup)
    assert [segment.text for segment in marked.segments] == read


@pytest.mark.parametrize("tag", ["<a ", "<a b=", "<a b='", "</a", "<!--"])
def test_tags_that_never_end_take_no_time(tag: str) -> None:
    text = tag * 60_000

    assert "".join(token.raw for token in read_html(text, HTML)) == text


@pytest.mark.parametrize(
    ("text", "order", "expected"),
    [
        (
            'the <bx id="1"/>red<ex id="1"/> <bx id="2"/>car<ex id="2"/> x',
            [0, 2, 1, 3],
            'la <bx id="2"/>voiture<ex id="2"/> <bx id="1"/>rouge<ex id="1"/> x',
        ),
        (
            'the <w:bookmarkStart w:id="1"/>red<w:bookmarkEnd w:id="1"/> car x',
            [0, 2, 1, 3],
            'la voiture <w:bookmarkStart w:id="1"/>rouge<w:bookmarkEnd w:id="1"/> x',
        ),
        (
            'the <g><bpt i="1"/>red</g> car<ept i="1"/> x',
            [0, 2, 1, 3],
            'la voiture <g><bpt i="1"/>rouge</g><ept i="1"/> x',
        ),
        (
            'the <sc id="a"/>red<ec startRef="a"/> car',
            [2, 0, 1],
            'voiture la <sc id="a"/>rouge<ec startRef="a"/>',
        ),
        ('the red<bx id="1"/><ex id="1"/> car', None, 'la rouge<bx id="1"/><ex id="1"/> voiture'),
    ],
)
def test_the_ends_of_a_range_go_together(text: str, order: list[int] | None, expected: str) -> None:
    markup = Markup(MarkupKind.XML, outline_detection=False)
    text = text.replace("w:", "")
    written = translate(layout(text, markup), by_table(FRENCH, order))
    assert written == expected.replace("w:", "")


def test_tags_that_cross_are_around_their_words() -> None:
    marked = layout("the <b>red <i>car</b> x</i> y", HTML)
    written = translate(marked, by_table(FRENCH))
    assert written == "la <b>rouge <i>voiture</b> x</i> y"


@pytest.mark.parametrize(
    "prolog",
    [
        '<?xml version="1.0"?><!-- a --><!DOCTYPE p>',
        "<!-- <!DOCTYPE x> --> <?a b?> <!DOCTYPE p SYSTEM 'a.dtd'> <!-- > -->",
        "<!DOCTYPE p [<!ELEMENT p (#PCDATA)> <!-- [x] > --> <?a ]>?>]>\n",
        '<!DOCTYPE p [<!ATTLIST p a CDATA "]>">]>',
    ],
)
def test_what_stands_before_the_root_stays(prolog: str) -> None:
    marked = layout(f"{prolog}<p>the dog</p>", XML)
    assert [segment.text for segment in marked.segments] == ["the dog"]
    assert translate(marked, by_table({"dog": "chien"})) == f"{prolog}<p>the chien</p>"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- a --><!DOCTYPE p [<!ENTITY a 'b'>]><p>&a;</p>",
        "<!DOCTYPE p [<!ENTITY % a 'b'> %a;]><p>a</p>",
        "<!DOCTYPE p [ %a; ]><p>a</p>",
        "<!-- a -- b --><!DOCTYPE p><p>a</p>",
        "a<!DOCTYPE p><p>a</p>",
        "<!DOCTYPE><p>a</p>",
        "<!DOCTYPE p><!DOCTYPE p><p>a</p>",
    ],
)
def test_entities_and_broken_prologs_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is not well-formed XML"):
        layout(text, XML)


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ('<p translate="no">a <b translate="yes">the dog.</b> b</p> end', ["the dog.", "end"]),
        ("<div class='notranslate'>x <p translate=yes>the dog</p> y</div>", ["the dog"]),
        ('<code>x <b translate="yes">the dog</b></code>', ["the dog"]),
        ('<code translate="yes">the dog</code>', ["the dog"]),
        ('<b translate="no">a<i translate="">b<u translate="no">c</u></i></b>', ["b%1"]),
        ('<b translate="no" translate="yes">dog</b>', ["%1"]),
        ("<ruby>a<rt>b</rt></ruby> c", ["a c"]),
        ("<var>x</var> is a dog", ["%1 is a dog"]),
        ("<template><p>the dog</p></template> dog", ["dog"]),
        ("<% if a > b %>the dog<% end %>", ["the dog"]),
        ("<?php echo $a->b ?> the dog", ["the dog"]),
    ],
)
def test_what_stays_in_html_but_what_asks_to_be_translated(text: str, segments: list[str]) -> None:
    marked = layout(text, HTML)
    assert [segment.text for segment in marked.segments] == segments
    assert marked.plain.fill(["".join(t.raw for t in s.tokens) for s in marked.segments]) == text

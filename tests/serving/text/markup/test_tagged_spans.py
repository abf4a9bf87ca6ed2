"""What must not change is kept whole where tags are within it, and tags nest as they did."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.markup.marked_translation import MarkedTranslation
from serving.text.markup.tokens import Markup, Role
from tests.serving.text.markup.fake_model import (
    HTML,
    XML,
    at_random,
    by_table,
    layout,
    tokenize_parts,
    translate,
)
from tests.serving.text.markup.test_any_markup import parse

WITHIN = [
    "`git <b>rebase</b> -i HEAD~3`",
    "`<b>git</b> rebase`",
    "`git <i><b>rebase</b></i> -i`",
    "<b>`git</b> rebase`",
    "`git <b>rebase`</b>",
    "<i><b>`git</b> re</i>base`",
    "{{ <b>user</b>.name }}",
    "{{ user<i>.</i>name }}",
    "{{<b> user.name </b>}}",
    "{<b>name</b>}",
    "${<b>count</b>}",
    "{% <b>if</b> x %}",
    "%<b>NAME</b>%",
    "$(<b>HOME</b>)",
    "{n, <b>plural</b>, one {# dog} other {# dogs}}",
    "{n, plural, one {# <b>dog</b>} other {# dogs}}",
    "&lt;<b>b</b>&gt;",
    "https://example.<b>org</b>/dog",
    "<b>https://</b>example.org/dog",
    "https://example.org/<b>dog</b>/cat",
    "https://example.org/<b>dog</b>s",
    "https://example.org/do<b>gs</b>",
    "https://example.org/dog?a=<b>1</b>&amp;b=2",
    "www.<b>example</b>.org",
    "<b>john</b>@example.org",
    "john<b>@example.org</b>",
    "john@<b>example</b>.org",
    "/home/<b>john</b>/dogs",
    "dogs_<b>of</b>_cats",
    "%<b>s</b>",
    "%(<b>name</b>)s",
    "1<b>23</b>4",
    "v<b>1.2</b>.3",
]
# An empty element, where these are as they are in both.
WITHIN_POINTS = [
    "https://example.<wbr/>org/a/<wbr/>dog",
    "{{ user<img/>.name }}",
    "john<!-- c -->@example.org",
]


@pytest.mark.parametrize("span", [*WITHIN, *WITHIN_POINTS])
@pytest.mark.parametrize("markup", [HTML, XML])
def test_a_span_with_tags_is_kept_as_it_is_written(span: str, markup: Markup) -> None:
    marked = layout(f"the dog {span} runs", markup, protection=True)
    assert [segment.text for segment in marked.segments] == ["the dog %1 runs"]
    assert translate(marked, by_table({}, [3, 0, 1, 2])) == f"runs the dog {span}"


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("run <%= <b>link_to</b> %> now", "<%= <b>link_to</b> %>"),
        ("run <%= link_to 'the dog' %> now", "<%= link_to 'the dog' %>"),
        ("run <?= $dog->name ?> now", "<?= $dog->name ?>"),
        ("run `git <br-x>rebase` now", "`git rebase`"),
    ],
)
def test_marks_of_template_engines_are_kept_in_html(text: str, raw: str) -> None:
    marked = layout(text, HTML, protection=True)
    assert [t.raw for t in marked.segments[0].tokens if t.role is Role.NON_TRANSLATABLE] == [raw]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("`git <b>rebase` now</b>", ["<b>", "`git rebase`", " now", "</b>"]),
        ("<b>run `git</b> rebase` x", ["<b>", "run ", "`git rebase`", "</b>", " x"]),
        ("<b>run `a</b> b <i>c` x</i>", ["<b>", "run ", "</b>", "<i>", "`a b c`", " x", "</i>"]),
        ("<i>{{ <b>a</i> }} x</b>", ["<i>", "<b>", "</i>", "{{ a }}", " x", "</b>"]),
        ("`a <b>b <i>c</i> d` e</b>", ["<b>", "`a b <i>c</i> d`", " e", "</b>"]),
        ("x `a <b>b`", ["x ", "<b>", "`a b`"]),
        ("`a</b> b` x", ["`a b`", "</b>", " x"]),
    ],
)
def test_a_tag_that_crosses_code_moves_to_its_border(text: str, tokens: list[str]) -> None:
    marked = layout(text, HTML, protection=True)
    raws = [token.raw for segment in marked.segments for token in segment.tokens if token.raw]
    assert "".join(raws) == "".join(tokens)
    assert [raw for raw in raws if "`" in raw or "{" in raw] == [
        raw for raw in tokens if "`" in raw or "{" in raw
    ]


@pytest.mark.parametrize(
    "text",
    [
        "see https://a.org/<b>the dog</b> runs",
        "see <b>dog@a.org</b>the dog runs",
        "<b>the dogs.</b><i>info is here</i>",
        "email<b>dog@a.org</b> now",
    ],
)
def test_what_no_signs_enclose_ends_at_a_tag(text: str) -> None:
    marked = layout(text, HTML, protection=True)
    raws = [t.raw for s in marked.segments for t in s.tokens if t.role is Role.NON_TRANSLATABLE]
    assert not any("<" in raw for raw in raws)
    assert "".join(t.raw for s in marked.segments for t in s.tokens) in text


@pytest.mark.parametrize(
    "text",
    [
        "see 1-<i>London, Paris</i> now",
        "12-<i>year</i> plan",
        "street 2 <b>London-</b>12 dogs",
    ],
)
def test_a_number_beside_a_tag_leaves_the_border_where_it_is(text: str) -> None:
    [segment] = layout(text, HTML, protection=True).segments
    parts = re.findall(r" ?\w+| ?[^\w\s]", segment.text)
    target = source = tokenize_parts(parts)
    assert MarkedTranslation(segment, target, source, np.eye(len(parts))).text() == text


@pytest.mark.parametrize(
    "text",
    [
        "1-<i>London, Paris</i>",
        "<p>12/<b>The dog</b></p>",
        "<p>(3)–<i>A <b>red</b> dog</i></p>",
        "<li><i>London</i>-4</li>",
    ],
)
def test_the_number_of_an_element_stays_beside_it(text: str) -> None:
    marked = layout(text, HTML, protection=True)
    assert not any(character.isdigit() for s in marked.segments for character in s.text)
    assert translate(marked, by_table({})) == text


@pytest.mark.parametrize("text", ["see 1-<i>London, Paris</i>", "<p>12-<i>Rome</i> is red</p>"])
def test_the_number_of_a_sentence_is_a_part_of_it(text: str) -> None:
    assert len(layout(text, HTML, protection=True).gaps[0]) < len("<p>1")


PIECES = st.sampled_from(
    ["`", "{{ ", " }}", "<b>", "</b>", "<i>", "</i>", "<x/>", "dog", "http://a.b/", "@c.org", " "]
)


@given(st.lists(PIECES, max_size=14).map("".join), st.integers(0, 1000))
def test_xml_with_code_in_it_stays_well_formed(text: str, seed: int) -> None:
    try:
        parse(text)
    except SyntaxError:
        return
    marked = layout(text, XML, protection=True)
    parse(translate(marked, at_random(seed)))
    parse(marked.plain.fill(["".join(t.raw for t in s.tokens) for s in marked.segments]))

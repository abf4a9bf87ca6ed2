"""Whatever stands between the tags, and whatever a model makes of it: the marks come back."""

import re
from collections import Counter
from typing import Any
from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from serving.errors import RequestError
from serving.text.markup.tokens import Markup, MarkupKind, Role
from serving.text.sentences import Splitting
from tests.serving.text.markup.fake_model import HTML, XML, at_random, layout, translate

WORDS = st.sampled_from(
    [
        "the dog",
        "Hello.",
        " ",
        "a b c",
        "x &lt; y",
        "&amp;",
        "\n",
        "One. Two.",
        "é&#233;",
        "?",
        "%1",
    ]
)
NAMES = st.sampled_from(["b", "i", "p", "g", "code", "x-y"])
ATTRIBUTES = st.sampled_from(["", ' id="1"', " id='&quot;2'", ' translate="no"', ' class = "a b"'])
EMPTY = st.sampled_from(
    [
        '<bx id="1"/>',
        '<ex id="1"/>',
        '<x id="7"/>',
        "<br/>",
        "<!-- c -->",
        "<?pi d?>",
        "<![CDATA[a<b]]>",
        "<b/>",
    ]
)


def elements(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda name, attributes, parts: f"<{name}{attributes}>{''.join(parts)}</{name}>",
        NAMES,
        ATTRIBUTES,
        st.lists(inner, max_size=4),
    )


FRAGMENTS = st.lists(
    st.recursive(st.one_of(WORDS, EMPTY), elements, max_leaves=12), max_size=6
).map("".join)
OPTIONS = st.builds(
    Markup,
    st.just(MarkupKind.XML),
    splitting_tags=st.frozensets(NAMES, max_size=2),
    non_splitting_tags=st.frozensets(NAMES, max_size=2),
    ignore_tags=st.frozensets(NAMES, max_size=1),
    outline_detection=st.booleans(),
)
SEEDS = st.integers(0, 1000)


def parse(fragment: str) -> Any:
    return ElementTree.fromstring(f"<r>{fragment}</r>")


def tags(fragment: str, has_whole: bool) -> Counter[object]:
    """Count the elements with their attributes, and what each is in, unless one is not translated:
    it stands for a word, which may be in another element than it was.
    """
    counts: Counter[object] = Counter()
    for parent in parse(fragment).iter():
        for child in parent:
            place = "" if has_whole else parent.tag
            counts[place, child.tag, tuple(child.attrib.items())] += 1
    return counts


@given(FRAGMENTS, OPTIONS, SEEDS, st.booleans(), st.booleans(), st.sampled_from(Splitting))
@example(
    '<i>the dog</i><b>%1<bx id="1"/>the dog</b>',
    Markup(MarkupKind.XML, outline_detection=False),
    5,
    True,
    True,
    Splitting.SENTENCES,
)
def test_xml_is_well_formed_and_has_its_elements(
    fragment: str,
    markup: Markup,
    seed: int,
    protection: bool,
    has_attention: bool,
    splitting: Splitting,
) -> None:
    marked = layout(fragment, markup, protection, splitting)
    text = translate(marked, at_random(seed, has_attention))
    has_whole = bool(markup.ignore_tags) or any(
        "<" in token.raw  # X<b>1</b> is one word, as is 1<x/>the
        for segment in marked.segments
        for token in segment.tokens
        if token.role is Role.NON_TRANSLATABLE
    )
    assert tags(text, has_whole) == tags(fragment, has_whole)
    assert text.count("<!--") == fragment.count("<!--")


@given(FRAGMENTS, OPTIONS, st.booleans())
def test_xml_that_is_not_translated_is_as_it_was(
    fragment: str, markup: Markup, protection: bool
) -> None:
    marked = layout(fragment, markup, protection)
    raw = ["".join(token.raw for token in segment.tokens) for segment in marked.segments]
    written = marked.plain.fill(raw)
    assert written == fragment.replace("<![CDATA[a<b]]>", "a&lt;b")


ANY_HTML = st.lists(
    st.one_of(
        WORDS,
        EMPTY,
        NAMES.map("<{}>".format),
        NAMES.map("</{}>".format),
        st.sampled_from(["<", "<b", "<a href='x>", "<!-", "<script>a<b", "</", "&copy", "<pre>\n"]),
        st.text(max_size=5),
    ),
    max_size=12,
).map("".join)


@given(ANY_HTML, SEEDS, st.booleans(), st.booleans())
@example('<é<x id="7"/>', 0, False, False)  # a tag's name begins with a letter of ASCII
@example("<the dog\n<pre>\n", 0, False, False)  # one tag: "<pre" is the name of an attribute
@example("<a href='x>\n<pre>", 0, False, False)  # a value that never ends, so no tag either
@example("&copythe<b>+", 0, False, False)  # a word begins within an entity that lacks its end
@example("the dog<p>&copya</i>é&#233;</i>", 0, False, False)
@example('/<bx id="1"/>Hello.', 0, True, False)  # half a range within a path stands before it
def test_html_has_its_tags_whatever_is_wrong_with_it(
    text: str, seed: int, protection: bool, has_attention: bool
) -> None:
    marked = layout(text, HTML, protection)
    raw = ["".join(token.raw for token in segment.tokens) for segment in marked.segments]
    moves_ranges = protection and re.search("<[be]x ", text)
    assert marked.plain.fill(raw) == text or moves_ranges
    translated = translate(marked, at_random(seed, has_attention))
    whole = re.compile(r"</?[a-z][^<>]*>")
    assert Counter(whole.findall(translated)) >= Counter(
        tag
        for segment in marked.segments
        for token in segment.tokens
        for tag in [token.raw]
        if token.role is not Role.TEXT and whole.fullmatch(tag)
    )


@given(st.text(alphabet="<>/ab &;![]-?'\"=x", max_size=40))
@example("''")
def test_what_is_no_xml_is_refused_and_nothing_else_happens(text: str) -> None:
    try:
        marked = layout(text, XML)
    except RequestError as error:
        assert error.field == "text"
        return
    parse(translate(marked, at_random(1)))


PLAIN = st.lists(
    st.one_of(
        WORDS,
        st.sampled_from(
            [
                "**bold**",
                "*a b*",
                "_c_",
                "[t](u)",
                "`x y`",
                " {name} ",
                "%s",
                "http://a.b/c",
                "🙂",
                "<b>",
                "</b>",
                "<x/>",
                "\n# ",
                "\n- ",
                "```\ncode\n```\n",
                "{n, plural, one {a} other {b}}",
            ]
        ),
        st.text(max_size=5),
    ),
    max_size=12,
).map("".join)


@given(PLAIN, SEEDS, st.booleans())
def test_what_is_protected_is_there_once(text: str, seed: int, has_attention: bool) -> None:
    marked = layout(text, protection=True)
    raw = ["".join(token.raw for token in segment.tokens) for segment in marked.segments]
    assert marked.plain.fill(raw) == text or re.search(r"\d", text)  # a gap has 16:44 for 4:44 pm
    translated = translate(marked, at_random(seed, has_attention))
    raws = Counter(
        token.translation
        for segment in marked.segments
        for token in segment.tokens
        if token.role in (Role.NON_TRANSLATABLE, Role.POINT)
    )
    assert all(translated.count(raw) >= number for raw, number in raws.items())
    if " {name} " in text:
        assert translated.count("{name}") == text.count("{name}")

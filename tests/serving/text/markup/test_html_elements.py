"""An element of HTML is the same to a translation in `format=html` and in a `.html` file."""

from pathlib import Path

import pytest

from serving.text.markup.html_elements import (
    BLOCK,
    ESCAPABLE_RAW_TEXT,
    INLINE,
    NEVER_TRANSLATED,
    PREFORMATTED,
    RAW_TEXT,
    TRANSLATED_ON_REQUEST,
    VOID,
    WORDLESS,
)
from tests.serving.documents.shouting import shout_file
from tests.serving.text.markup.fake_model import HTML, by_table, layout, translate

# The elements of the HTML standard, and obsolete ones that it says how to parse or show.
STANDARD = frozenset(
    {
        *("a", "abbr", "address", "area", "article", "aside", "audio", "b", "base", "bdi", "bdo"),
        *("blockquote", "body", "br", "button", "canvas", "caption", "cite", "code", "col"),
        *("colgroup", "data", "datalist", "dd", "del", "details", "dfn", "dialog", "div", "dl"),
        *("dt", "em", "embed", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2"),
        *("h3", "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "i", "iframe", "img"),
        *("input", "ins", "kbd", "label", "legend", "li", "link", "main", "map", "mark", "math"),
        *("menu", "meta", "meter", "nav", "noscript", "object", "ol", "optgroup", "option"),
        *("output", "p", "picture", "pre", "progress", "q", "rp", "rt", "ruby", "s", "samp"),
        *("script", "search", "section", "select", "slot", "small", "source", "span", "strong"),
        *("style", "sub", "summary", "sup", "svg", "table", "tbody", "td", "template", "textarea"),
        *("tfoot", "th", "thead", "time", "title", "tr", "track", "u", "ul", "var", "video", "wbr"),
        *("acronym", "applet", "basefont", "bgsound", "big", "blink", "center", "dir", "font"),
        *("frame", "frameset", "keygen", "listing", "marquee", "nobr", "noembed", "noframes"),
        *("param", "plaintext", "rb", "rtc", "strike", "tt", "xmp"),
    }
)
ELEMENTS = sorted({*STANDARD, "my-element", "unheard-of"})
WORDS = ["one", "two", "dogs", "big", "cats", "low"]


def of_text(html: str) -> str:
    """A text of `format=html`, its words in capitals."""
    return translate(layout(html, HTML, True), by_table({word: word.upper() for word in WORDS}))


def of_file(html: str, folder: Path) -> str:
    path, target = folder / "a.html", folder / "b.html"
    path.write_text(html, encoding="utf-8")
    shout_file(path, target)
    return target.read_text("utf-8").replace(' lang="fr"', "")


def test_every_element_is_listed_once() -> None:
    assert not BLOCK & INLINE
    assert BLOCK | INLINE == STANDARD
    for names in (VOID, RAW_TEXT, ESCAPABLE_RAW_TEXT, WORDLESS, PREFORMATTED):
        assert names <= STANDARD
    assert not NEVER_TRANSLATED & TRANSLATED_ON_REQUEST


@pytest.mark.parametrize("attribute", ["", ' translate="yes"', ' translate="no"', " class=x"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_an_element_is_the_same_in_texts_and_in_files(
    tmp_path: Path, name: str, attribute: str
) -> None:
    inner = "" if name in VOID else f"big cats</{name}>"
    html = f"one low <{name}{attribute}>{inner} two dogs"

    translated = of_text(html)

    assert translated == of_file(html, tmp_path)
    assert "ONE LOW" in translated
    is_raw = name == "plaintext"  # it has no end
    assert ("TWO DOGS" in translated) is not is_raw
    wish = {"": None, ' translate="yes"': True, ' translate="no"': False}.get(attribute)
    is_translated = wish if wish is not None else name not in TRANSLATED_ON_REQUEST
    if name not in VOID:
        assert ("BIG CATS" in translated) is (is_translated and name not in NEVER_TRANSLATED)


@pytest.mark.parametrize("name", [name for name in ELEMENTS if name not in ("br", "plaintext")])
def test_texts_end_at_the_same_elements(tmp_path: Path, name: str) -> None:
    """But for `br`: a file's text goes on after it, and is cut there when it is translated."""
    inner = "" if name in VOID else f"cats</{name}>"
    html = f"one low <{name}>{inner} two dogs"
    path, target = tmp_path / "a.html", tmp_path / "b.html"
    path.write_text(html, encoding="utf-8")

    num_texts_of_file = len(shout_file(path, target))

    assert len(layout(html, HTML, True).segments) == num_texts_of_file
    assert (num_texts_of_file > 1) is (name in BLOCK)

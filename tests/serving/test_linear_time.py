"""Reading and writing take time in proportion to the length of a text, whatever it consists of."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.documents.formats.registry import read_document
from serving.text.markup.tokens import Markup
from tests.serving.text.markup.fake_model import HTML, XML, by_table, layout, translate

Make = Callable[[int], str]


def repeated(part: str) -> Make:
    return lambda number: part * number


def nested(start: str, end: str, inner: str = "dog", outer: str = "{}") -> Make:
    return lambda number: outer.format(start * number + inner + end * number)


# What was, or may come to be, read by the square of its length. A part comes up to 2,000 times.
TEXTS: dict[str, Make] = {
    "nested tags": nested("<b>", "</b>"),
    "nested tags in a sentence": nested("<b>", "</b>", "", "a {} dog"),
    "nested blocks": nested("<div>", "</div>"),
    "tags that cross": nested("<b><i>", "</b></i>", "dog", "a {} dog"),
    "tags that one closes": lambda number: "<b>" + "<i>" * number + "dog</b> runs",
    "unclosed tags": repeated("<b>"),
    "closing tags": lambda number: "dog" + "</b>" * number,
    "points in a sentence": lambda number: "a " + "<img>" * number + " dog",
    "elements that stay and do not": nested("<b translate=no><i translate=yes>", "</i></b>"),
    "tags that never end": repeated("List<"),
    "end tags that never end": repeated("</a"),
    "comments that never end": repeated("<!-- "),
    "attributes": lambda number: "<b " + "a=1 " * number + ">dog</b>",
    "marks of templates": repeated("<% "),
    "kept side by side": repeated("<%=a%>"),
    "entities": repeated("&amp;"),
    "unusual characters": repeated("a\u00a0"),
    "signs": repeated("→ "),
    "items of a menu": repeated("Home | "),
    "links without an end": repeated("[a](b"),
    "braces": repeated("{{"),
    "brackets": repeated("(["),
    "backticks": repeated("`a"),
    "stars": repeated("*a"),
    "quotes": repeated("> "),
    "list marks": repeated("- "),
    "one letter": repeated("aaaa"),
    "one digit": repeated("1111"),
    "directions": repeated("\u200f"),
}
WELL_FORMED = ("nested tags", "nested tags in a sentence", "nested blocks", "entities", "signs")


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of a run."""
    start = time.process_time()
    work()
    return time.process_time() - start


def check_is_linear(read: Callable[[str], object], make: Make) -> None:
    """Four times the text may take nine times as long; by the square it takes sixteen times.

    Other processes may slow a run down, so only the least of several times counts as too long.
    """
    short, long = make(500), make(2_000)
    least = 0.02  # seconds; below that the clock and the collector of garbage count
    read(make(10))  # compiles patterns
    limit = max(9 * min(seconds(lambda: read(short)) for _ in range(2)), least)
    times: list[float] = []
    while not times or (min(times) >= limit and len(times) < 4):
        times.append(seconds(lambda: read(long)))
    assert min(times) < limit


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("markup", [pytest.param(None, marks=pytest.mark.full), HTML])
def test_texts(name: str, markup: Markup | None) -> None:
    check_is_linear(lambda text: layout(text, markup, protection=True), TEXTS[name])


@pytest.mark.full
@pytest.mark.parametrize("name", WELL_FORMED)
def test_xml(name: str) -> None:
    check_is_linear(lambda text: layout(text, XML, protection=True), TEXTS[name])


@pytest.mark.parametrize(
    "name", [name for name, make in TEXTS.items() if make(1)[:1] in "<a" and "List" not in make(1)]
)
def test_tags_of_translations(name: str) -> None:
    check_is_linear(
        lambda text: translate(layout(text, HTML, protection=True), by_table({})), TEXTS[name]
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.full] * (name not in WELL_FORMED)) for name in TEXTS],
)
def test_pages(tmp_path: Path, name: str) -> None:
    path, target = tmp_path / "a.html", tmp_path / "b.html"

    def write(text: str) -> None:
        path.write_text(text)
        document = read_document(path, path.name, "en", "fr")
        document.write([*document.fragments], target, "fr")

    check_is_linear(write, TEXTS[name])

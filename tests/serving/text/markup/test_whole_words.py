"""Words with tags or invisible characters in them are read whole, and formulas come back as they
were written.
"""

import pytest

from tests.serving.text.markup.fake_model import HTML, XML, by_table, layout, translate

FRENCH = {"the": "le", "dog": "chien", "children": "enfants", "unbelievable": "incroyable"}


@pytest.mark.parametrize(
    "word",
    [
        "H<sub>2</sub>O",
        "<i>H<sub>2</sub>O</i>",
        "CO<sub>2</sub>",
        "m<sup>2</sup>",
        "C<sub>6</sub>H<sub>12</sub>O<sub>6</sub>",
        "Ca<sup>2+</sup>",
        "10<sup>-3</sup>",
        "1<sup>st</sup>",
        "M<sup>me</sup>",
        "x<sub>max</sub>",
        "<b>C</b>O<sub>2</sub>",
        "log<sub>2</sub>",
        "5<b>km</b>",
        "SO<sub>4</sub><sup>2-</sup>",
    ],
)
@pytest.mark.parametrize("markup", [HTML, XML])
def test_formulas_are_kept_as_they_are_written(word: str, markup: object) -> None:
    marked = layout(f"the {word}, a dog", markup)  # type: ignore[arg-type]
    assert [segment.text for segment in marked.segments] == ["the %1, a dog"]
    assert translate(marked, by_table(FRENCH)) == f"le {word}, a chien"


@pytest.mark.parametrize(
    ("text", "read", "written"),
    [
        ("the dog<sup>3</sup> x", "the dog x", "le chien<sup>3</sup> x"),
        (
            'the dog<a href="#n"><sup>12</sup></a> x',
            "the dog x",
            'le chien<a href="#n"><sup>12</sup></a> x',
        ),
        ("the chil&shy;dren x", "the children x", "le enfants x"),
        ("the chil\u00addren x", "the children x", "le enfants x"),
        ("the chil\u200b\u00addren x", "the children x", "le enfants x"),
        ("the chil<wbr>dren x", "the children x", "le enfants<wbr> x"),
        ("the <b>un</b>believable x", "the unbelievable x", "le <b>incroyable</b> x"),
        ("<span>3</span>comments x", "3 comments x", "<span>3</span> comments x"),
        ("comments<b>3</b> x", "comments x", "comments<b>3</b> x"),
        ("\u0e01\u200b\u0e02 x", "\u0e01\u200b\u0e02 x", "\u0e01\u200b\u0e02 x"),
    ],
)
def test_words_are_read_whole(text: str, read: str, written: str) -> None:
    marked = layout(text, HTML)
    assert [segment.text for segment in marked.segments] == [read]
    assert translate(marked, by_table(FRENCH)) == written

"""What OpenDocument allows within a paragraph: words are translated, all elements stay in order."""

import zipfile
from pathlib import Path

import pytest
from lxml import etree
from odf import draw, opendocument, svg, text

from tests.serving.documents.packages.test_word_paragraphs import drawn
from tests.serving.documents.shouting import shout_file

NAMESPACES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for prefix, name in {"text": "text", "office": "office", "draw": "drawing"}.items()
)
CASES = {
    "ranges": (
        'a <text:bookmark-start text:name="b"/>marked <text:span>word</text:span><text:bookmark-end'
        ' text:name="b"/> and <office:annotation office:name="n"><text:p>a note</text:p>'
        '</office:annotation>noted<office:annotation-end office:name="n"/> here',
        ["a (marked (word)) and <>noted<> here", "a note"],
    ),
    "changes": (
        'one <text:change-start text:change-id="c"/>two<text:change-end text:change-id="c"/>'
        '<text:change text:change-id="d"/> three',
        ["one (two)<> three"],
    ),
    "ranges that cross": (
        'a <text:bookmark-start text:name="a"/>b <text:bookmark-start text:name="b"/>c'
        ' <text:bookmark-end text:name="a"/>d <text:bookmark-end text:name="b"/>e',
        ["a (b <>c )d <>e"],
    ),
    "a pronunciation": (
        "<text:ruby><text:ruby-base>dog</text:ruby-base><text:ruby-text>INU</text:ruby-text>"
        "</text:ruby> runs",
        ["(dog) runs"],
    ),
    "fields and spaces": (
        'page <text:page-number>3</text:page-number>, two<text:s text:c="2"/>spaces<text:tab/>next'
        "<text:soft-page-break/> page",
        ["page {3}, two<>spaces|next<> page"],
    ),
    "a note": (
        'a word<text:note text:note-class="footnote"><text:note-citation>1</text:note-citation>'
        "<text:note-body><text:p>its note</text:p></text:note-body></text:note> more",
        ["a word<> more", "its note"],
    ),
    "lines": ("in<text:line-break/>the park.<text:line-break/>Now", ["in <> the park.|Now"]),
}


def written(path: Path, content: str) -> None:
    document = opendocument.OpenDocumentText()
    document.text.addElement(text.P(text="MARK"))
    document.save(str(path))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    paragraph = f"<text:p {NAMESPACES}>{content}</text:p>".encode()
    parts["content.xml"] = parts["content.xml"].replace(b"<text:p>MARK</text:p>", paragraph)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def outline(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        root = etree.fromstring(archive.read("content.xml"))
    return [
        "/".join(
            etree.QName(ancestor).localname for ancestor in (element, *element.iterancestors())
        )
        + str(element.items())
        for element in root.iter()
    ]


@pytest.mark.parametrize("name", CASES)
def test_what_a_paragraph_may_hold(tmp_path: Path, name: str) -> None:
    content, expected = CASES[name]
    path, target = tmp_path / "a.odt", tmp_path / "b.odt"
    written(path, content)

    fragments = shout_file(path, target)

    assert [drawn(fragment) for fragment in fragments] == expected
    assert outline(target) == outline(path)


def test_tables_of_contents(tmp_path: Path) -> None:
    path, target = tmp_path / "a.odt", tmp_path / "b.odt"
    entries = (
        "<text:index-title><text:p>Contents</text:p></text:index-title><text:p>One dog</text:p>"
    )
    index = f"<text:index-body>{entries}</text:index-body>"
    written(path, f'<text:table-of-content text:name="t">{index}</text:table-of-content>')

    assert shout_file(path, target) == ["Contents", "One dog"]


OFFICE = "urn:oasis:names:tc:opendocument:xmlns:"
CHART = f"""<office:document-content xmlns:office="{OFFICE}office:1.0"
 xmlns:chart="{OFFICE}chart:1.0" xmlns:table="{OFFICE}table:1.0" xmlns:text="{OFFICE}text:1.0">
<office:body><office:chart><chart:chart><chart:title><text:p>a title</text:p></chart:title>
<table:table><table:table-cell><text:p>the sales</text:p></table:table-cell><table:table-cell>
<text:p>1.5</text:p></table:table-cell></table:table></chart:chart></office:chart></office:body>
</office:document-content>"""
OTHER = CHART.replace("office:chart>", "office:spreadsheet>").replace("a title", "a cell")


def test_charts_and_descriptions_of_pictures(tmp_path: Path) -> None:
    path, target = tmp_path / "a.odt", tmp_path / "b.odt"
    document = opendocument.OpenDocumentText()
    frame = draw.Frame()
    frame.addElement(svg.Title(text="our dog"))
    frame.addElement(svg.Desc(text="a red dog"))
    paragraph = text.P(text="beside ")
    paragraph.addElement(frame)
    document.text.addElement(paragraph)
    document.save(str(path))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("Object 1/content.xml", CHART)
        archive.writestr("Object 2/content.xml", OTHER)

    fragments = shout_file(path, target)

    assert fragments == ["our dog", "a red dog", "beside", "a title", "the sales"]
    with zipfile.ZipFile(target) as archive:
        content = archive.read("content.xml").decode()
        assert "OUR DOG" in content and "A RED DOG" in content and "BESIDE" in content
        assert "THE SALES" in archive.read("Object 1/content.xml").decode()
        assert archive.read("Object 2/content.xml").decode() == OTHER

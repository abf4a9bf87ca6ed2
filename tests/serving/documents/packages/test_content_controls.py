"""Content controls that show a property: Word shows the property again, so both say the same."""

import zipfile
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from lxml import etree

from tests.serving.documents.packages.test_drawing import RELATIONSHIPS, with_parts
from tests.serving.documents.packages.test_office import parts
from tests.serving.documents.shouting import shout_file

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
CP = "http://schemas.openxmlformats.org/package/2006/metadata/core-properties"
DC = "http://purl.org/dc/elements/1.1/"
CORE_ID = "{6C3C8BC8-F283-45AE-878A-BAB7291924A1}"
OWN_ID = "{11111111-2222-3333-4444-555555555555}"
CORE = f"xmlns:ns0='{DC}' xmlns:ns1='{CP}'"
TITLE = "/ns1:coreProperties[1]/ns0:title[1]"
OWN = "<notes xmlns='urn:own'><note>first note</note><note>the second note</note></notes>"
OWN_PREFIXES = "xmlns:n='urn:own'"


def binding(path: str, prefixes: str = CORE, identity: str = CORE_ID) -> str:
    return (
        f'<w:dataBinding w:prefixMappings="{prefixes}" w:xpath="{path}"'
        f' w:storeItemID="{identity}"/>'
    )


def own(path: str, identity: str = OWN_ID) -> str:
    return binding(path, OWN_PREFIXES, identity)


def control(bound: str, text: str, kind: str = "<w:text/>") -> str:
    """Return a control within a paragraph."""
    runs = text if text.startswith("<") else f"<w:r><w:t>{text}</w:t></w:r>"
    return (
        f'<w:sdt xmlns:w="{W}"><w:sdtPr>{bound}{kind}</w:sdtPr><w:sdtContent>{runs}'
        "</w:sdtContent></w:sdt>"
    )


def make(path: Path, *bodies: str, title: str = "the report") -> None:
    """Write a document of paragraphs, which have what `bodies` say after the word `See`."""
    document = docx.Document()
    properties = document.core_properties
    properties.title, properties.author = title, "Ann Smith"
    properties.subject = "a subject"
    for body in bodies:
        element = parse_xml(body)
        if element.find(f".//{{{W}}}p") is not None:
            document.element.body.insert(0, element)
        else:
            document.add_paragraph("See ")._p.append(element)
    document.save(str(path))
    props = "application/vnd.openxmlformats-officedocument.customXmlProperties+xml"
    relation = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="rId1" Type="{RELATIONSHIPS}/customXmlProps" Target="itemProps1.xml"/>'
        "</Relationships>"
    )
    data_store = "http://schemas.openxmlformats.org/officeDocument/2006/customXml"
    item = f'<ds:datastoreItem ds:itemID="{OWN_ID}" xmlns:ds="{data_store}"/>'
    with_parts(
        path,
        {
            "customXml/item1.xml": ("", OWN.encode()),
            "customXml/itemProps1.xml": (props, item.encode()),
            "customXml/_rels/item1.xml.rels": ("", relation.encode()),
        },
    )


def shown(path: Path) -> list[str]:
    """Return the texts of all controls."""
    with zipfile.ZipFile(path) as archive:
        root = etree.fromstring(archive.read("word/document.xml"))
    return [
        "".join(element.text or "" if element.tag.endswith("}t") else "/" for element in elements)
        for sdt in root.iter(f"{{{W}}}sdt")
        for elements in [[*sdt.iter(f"{{{W}}}t", f"{{{W}}}br")]]
    ]


def notes(path: Path) -> list[str | None]:
    return [note.text for note in etree.fromstring(parts(path)["customXml/item1.xml"])]


PLAIN = ("first note", "the second note")
LOUD = ("FIRST NOTE", "THE SECOND NOTE")
TABLE: list[tuple[list[str], list[str], str, tuple[str, str]]] = [
    # what is in the document, what the controls show, the title, and the notes
    ([control(binding(TITLE), "the report")], ["THE REPORT"], "THE REPORT", PLAIN),
    ([control(binding(TITLE), "an old title")], ["THE REPORT"], "THE REPORT", PLAIN),
    (
        [control(binding(TITLE), "the report"), control(binding(TITLE), "the report")],
        ["THE REPORT", "THE REPORT"],
        *("THE REPORT", PLAIN),
    ),
    (
        [control(binding(TITLE), "<w:r><w:t>the </w:t></w:r><w:r><w:t>report</w:t></w:r>")],
        *(["THE REPORT"], "THE REPORT", PLAIN),
    ),
    (
        [control(binding(TITLE), "<w:p><w:r><w:t>the report</w:t></w:r></w:p>")],
        *(["THE REPORT"], "THE REPORT", PLAIN),
    ),
    (
        [control(binding(TITLE.replace("[1]", "")), "the report", "")],
        *(["THE REPORT"], "THE REPORT", PLAIN),
    ),
    (
        [control(own("/n:notes/n:note[2]"), "the second note")],
        ["THE SECOND NOTE"],
        "the report",
        ("first note", "THE SECOND NOTE"),
    ),
    (
        [control(own("/n:notes[1]/n:note[1]"), "x"), control(own("/n:notes/n:note[2]"), "y")],
        [*LOUD],
        "the report",
        LOUD,
    ),
    (
        [control(own("/n:notes/n:note", OWN_ID.lower()), "x")],
        ["FIRST NOTE"],
        "the report",
        (LOUD[0], PLAIN[1]),
    ),
    # Names and dates stay in both places.
    (
        [control(binding("/ns1:coreProperties[1]/ns0:creator[1]"), "Ann Smith")],
        ["Ann Smith"],
        "the report",
        PLAIN,
    ),
    ([control(binding(TITLE), "May 2026", "<w:date/>")], ["May 2026"], "the report", PLAIN),
    ([control(binding(TITLE), "a choice", "<w:dropDownList/>")], ["a choice"], "the report", PLAIN),
    # What is not stored, or not where the control says, is text like any other.
    ([control("", "some text")], ["SOME TEXT"], "the report", PLAIN),
    (
        [control(binding("/ns1:coreProperties/ns0:nothing"), "some text")],
        ["SOME TEXT"],
        "the report",
        PLAIN,
    ),
    ([control(binding("//ns0:title"), "some text")], ["SOME TEXT"], "the report", PLAIN),
    (
        [control(binding(TITLE, CORE, "{00000000-0000-0000-0000-000000000000}"), "some text")],
        ["SOME TEXT"],
        "the report",
        PLAIN,
    ),
    ([control(own("/n:notes"), "some text")], ["SOME TEXT"], "the report", PLAIN),
    ([control(own("/n:notes/n:note[3]"), "some text")], ["SOME TEXT"], "the report", PLAIN),
]


@pytest.mark.parametrize(("bodies", "texts", "title", "stored"), TABLE)
def test_a_control_shows_what_is_stored(
    tmp_path: Path, bodies: list[str], texts: list[str], title: str, stored: tuple[str, str]
) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    make(path, *bodies)

    shout_file(path, target)

    assert shown(target) == texts
    properties = docx.Document(str(target)).core_properties
    assert (properties.title, properties.author) == (title, "Ann Smith")
    assert properties.subject == "a subject"
    assert tuple(notes(target)) == stored


def test_lines_of_a_stored_text_are_lines_of_the_control(tmp_path: Path) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    make(path, control(binding(TITLE), "the report"), title="the report\nof dogs")

    shout_file(path, target)

    assert shown(target) == ["THE REPORT/OF DOGS"]


def test_a_control_within_a_sentence_is_a_word_of_it(tmp_path: Path) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    make(path, control(binding(TITLE), "the report"))

    fragments = shout_file(path, target)

    assert fragments == ["the report", 'See <k id="1">the report</k>']
    assert docx.Document(str(target)).paragraphs[0].text == "SEE "  # python-docx skips controls


def test_a_header_that_only_shows_a_property_is_written(tmp_path: Path) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    document = docx.Document()
    document.core_properties.title = "the report"
    header = document.sections[0].header.paragraphs[0]
    header._p.append(parse_xml(control(binding(TITLE), "the report")))
    document.save(str(path))

    assert shout_file(path, target) == ["the report"]
    [name] = [name for name in parts(target) if "header" in name]
    assert b"THE REPORT" in parts(target)[name]

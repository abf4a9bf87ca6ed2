"""Charts, diagrams, shapes and descriptions of pictures, in Word and PowerPoint alike; names of a
chart and the cells that they come from stay equal.
"""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
import xlsxwriter
from docx.oxml import parse_xml
from lxml import etree
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from serving.documents.formats.registry import read_document
from serving.documents.packages import charts
from serving.errors import TooLarge
from tests.serving.documents.packages.test_office import PIXEL, parts
from tests.serving.documents.shouting import shout_file

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"
RELATIONSHIPS = f"{OFFICE}/relationships"
PACKAGES = "http://schemas.openxmlformats.org/package/2006"
TYPES = "application/vnd.openxmlformats-officedocument."
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
XMLNS = (
    f'xmlns:a="{A}" xmlns:c="{C}" xmlns:r="{RELATIONSHIPS}"'
    ' xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    ' xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"'
    ' xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
    ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    ' xmlns:v="urn:schemas-microsoft-com:vml"'
    ' xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
    ' xmlns:dsp="http://schemas.microsoft.com/office/drawing/2008/diagram"'
    ' xmlns:cdr="http://schemas.openxmlformats.org/drawingml/2006/chartDrawing"'
    ' xmlns:cx="http://schemas.microsoft.com/office/drawing/2014/chartex"'
    ' xmlns:c15="http://schemas.microsoft.com/office/drawing/2012/chart"'
    ' xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
    ' xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture"'
)


def said(text: str) -> str:
    return f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>"


def with_parts(path: Path, added: dict[str, tuple[str, bytes]]) -> None:
    """Add parts to an archive: their content types and contents, by their names."""
    archive_parts = parts(path)
    overrides = "".join(
        f'<Override PartName="/{name}" ContentType="{kind}"/>'
        for name, (kind, _) in added.items()
        if kind
    )
    types = archive_parts["[Content_Types].xml"]
    if b'Extension="xlsx"' not in types:
        overrides += f'<Default Extension="xlsx" ContentType="{TYPES}spreadsheetml.sheet"/>'
    archive_parts["[Content_Types].xml"] = types.replace(
        b"</Types>", overrides.encode() + b"</Types>"
    )
    archive_parts |= {name: content for name, (_, content) in added.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in archive_parts.items():
            archive.writestr(name, data)


def make_docx(
    path: Path, body: str = "", added: dict[str, tuple[str, bytes]] | None = None
) -> None:
    document = docx.Document()
    document.add_paragraph("the body")
    if body:
        document.paragraphs[0]._p.append(parse_xml(body))
    document.save(str(path))
    with_parts(path, added or {})


def make_pptx(
    path: Path, body: str = "", added: dict[str, tuple[str, bytes]] | None = None
) -> None:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "the body"
    deck.save(str(path))
    with_parts(path, added or {})


MAKERS: list[tuple[str, Callable[..., None]]] = [("docx", make_docx), ("pptx", make_pptx)]


def chart_part(inner: str) -> tuple[str, bytes]:
    xml = f"<c:chartSpace {XMLNS}><c:chart>{inner}</c:chart></c:chartSpace>"
    return TYPES + "drawingml.chart+xml", xml.encode()


def title(text: str) -> str:
    return f"<c:title><c:tx><c:rich>{said(text)}</c:rich></c:tx></c:title>"


def names(formula: str, *texts: str) -> str:
    points = "".join(f'<c:pt idx="{n}"><c:v>{text}</c:v></c:pt>' for n, text in enumerate(texts))
    return f"<c:strRef><c:f>{formula}</c:f><c:strCache>{points}</c:strCache></c:strRef>"


def diagram(kind: str, name: str, inner: str) -> tuple[str, bytes]:
    return kind, f"<{name} {XMLNS}>{inner}</{name}>".encode()


# Parts of DrawingML, and the texts that are translated of them.
DRAWINGS: list[tuple[str, tuple[str, bytes], list[str]]] = [
    (
        "charts/chart1.xml",
        chart_part(
            title("dogs and cats")
            + f"<c:plotArea><c:catAx>{title('the years')}</c:catAx>"
            + f"<c:valAx>{title('in boxes')}</c:valAx></c:plotArea>"
        ),
        ["dogs and cats", "the years", "in boxes"],
    ),
    (
        "charts/chart2.xml",
        chart_part(
            "<c:plotArea><c:barChart><c:ser>"
            f"<c:tx>{names('label 0', 'the sales')}</c:tx>"
            f"<c:cat>{names('categories', 'red dogs', '2025', 'cats')}</c:cat>"
            "<c:trendline><c:name>a trend</c:name></c:trendline>"
            "</c:ser><c:ser><c:tx><c:v>a name</c:v></c:tx><c:cat><c:strLit><c:pt idx='0'>"
            "<c:v>a literal</c:v></c:pt></c:strLit></c:cat></c:ser></c:barChart></c:plotArea>"
        ),
        ["the sales", "red dogs", "cats", "a trend", "a name", "a literal"],
    ),
    (
        "charts/chart3.xml",
        chart_part(
            "<c:dLbls><c:dLbl><c:tx><c:rich>" + said("a label") + "</c:rich></c:tx></c:dLbl>"
            "<c:extLst><c:ext><c15:datalabelsRange><c15:f>Sheet1!$C$2</c15:f><c15:dlblRangeCache>"
            "<c:pt idx='0'><c:v>from a cell</c:v></c:pt></c15:dlblRangeCache>"
            "</c15:datalabelsRange></c:ext></c:extLst></c:dLbls>"
        ),
        ["a label", "from a cell"],
    ),
    (
        "charts/chartEx1.xml",
        diagram(
            "application/vnd.ms-office.chartex+xml",
            "cx:chartSpace",
            f"<cx:chart><cx:title><cx:tx><cx:rich>{said('a funnel')}</cx:rich></cx:tx></cx:title>"
            "</cx:chart>",
        ),
        ["a funnel"],
    ),
    (
        "drawings/drawing9.xml",
        diagram(
            TYPES + "drawingml.chartshapes+xml",
            "c:userShapes",
            f"<cdr:sp><cdr:txBody>{said('an arrow')}</cdr:txBody></cdr:sp>",
        ),
        ["an arrow"],
    ),
    (
        "diagrams/data1.xml",
        diagram(
            TYPES + "drawingml.diagramData+xml",
            "dgm:dataModel",
            f"<dgm:ptLst><dgm:pt><dgm:t>{said('first step')}</dgm:t></dgm:pt>"
            f"<dgm:pt><dgm:t>{said('second step')}</dgm:t></dgm:pt></dgm:ptLst>",
        ),
        ["first step", "second step"],
    ),
    (
        "diagrams/drawing1.xml",
        diagram(
            "application/vnd.ms-office.drawingml.diagramDrawing+xml",
            "dsp:drawing",
            f"<dsp:sp><dsp:txBody>{said('first step')}</dsp:txBody></dsp:sp>"
            f"<dsp:sp><dsp:txBody>{said('second step')}</dsp:txBody></dsp:sp>",
        ),
        ["first step", "second step"],
    ),
]


@pytest.mark.parametrize(("extension", "make"), MAKERS)
@pytest.mark.parametrize(("name", "part", "expected"), DRAWINGS)
def test_parts_of_drawings_are_translated(
    tmp_path: Path,
    extension: str,
    make: Callable[..., None],
    name: str,
    part: tuple[str, bytes],
    expected: list[str],
) -> None:
    path, target = tmp_path / f"a.{extension}", tmp_path / f"b.{extension}"
    folder = "word" if extension == "docx" else "ppt"
    make(path, added={f"{folder}/{name}": part})

    fragments = shout_file(path, target)

    assert sorted(fragments) == sorted(["the body", *expected])
    written = parts(target)[f"{folder}/{name}"].decode()
    for text in expected:
        assert f">{text.upper()}<" in written and f">{text}<" not in written


BOX = (
    "<w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p></w:txbxContent>",
    "in a box",
)
BODIES: list[tuple[str, list[str]]] = [
    (
        f"<w:r {XMLNS}><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing>"
        f"<wps:wsp><wps:txbx>{BOX[0]}</wps:txbx></wps:wsp></w:drawing></mc:Choice><mc:Fallback>"
        f"<w:pict><v:shape><v:textbox>{BOX[0]}</v:textbox></v:shape></w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r>",
        ["in a box", "in a box"],
    ),
    (
        f"<w:r {XMLNS}><w:pict><v:shape alt='an old picture'><v:textpath string='for sale'/>"
        "</v:shape></w:pict></w:r>",
        ["for sale", "an old picture"],
    ),
    (
        f"<w:r {XMLNS}><w:drawing><wp:inline><wp:docPr id='7' name='Picture 7' descr='a red dog'"
        " title='our dog'/><a:graphic><a:graphicData><pic:pic><pic:nvPicPr>"
        "<pic:cNvPr id='7' name='dog.png' descr='a red dog'/></pic:nvPicPr></pic:pic>"
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r>",
        ["a red dog", "our dog", "a red dog"],
    ),
    (
        f"<w:r {XMLNS}><w:drawing><wp:inline><wp:docPr id='7' name='n' descr='my dog.png'"
        " title='IMG_1.jpeg'/></wp:inline></w:drawing></w:r>",
        [],
    ),
    (
        f"<w:r {XMLNS}><w:drawing><a:sp><a:txSp><a:txBody>{said('on a canvas')}</a:txBody>"
        "</a:txSp></a:sp></w:drawing></w:r>",
        ["on a canvas"],
    ),
    (
        f"<w:sdt {XMLNS}><w:sdtPr><w:dropDownList>"
        "<w:listItem w:displayText='a choice' w:value='1'/></w:dropDownList></w:sdtPr>"
        "<w:sdtContent><w:r><w:t> a choice</w:t></w:r></w:sdtContent>"
        "</w:sdt>",
        ["a choice"],
    ),
]


@pytest.mark.parametrize(("body", "expected"), BODIES)
def test_shapes_in_a_word_document(tmp_path: Path, body: str, expected: list[str]) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    make_docx(path, body)

    fragments = shout_file(path, target)

    assert sorted(fragments)[: len(expected)] == sorted(expected)
    written = parts(target)["word/document.xml"].decode()
    for text in expected:
        assert text.upper() in written and text not in written


def test_descriptions_comments_and_layouts_of_a_presentation(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pptx", tmp_path / "b.pptx"
    deck = pptx.Presentation()
    layout = deck.slide_layouts[5]
    box = layout.shapes._spTree  # python-pptx adds no shapes to layouts
    box.append(
        etree.fromstring(
            f"<p:sp {XMLNS}><p:nvSpPr><p:cNvPr id='99' name='x'/><p:cNvSpPr/><p:nvPr/></p:nvSpPr>"
            f"<p:spPr/><p:txBody><a:bodyPr/>{said('on every slide')}</p:txBody></p:sp>"
        )
    )
    slide = deck.slides.add_slide(layout)
    slide.shapes.title.text = "the body"
    picture: Any = slide.shapes.add_picture(io.BytesIO(PIXEL), 0, 0)
    picture._element.nvPicPr.cNvPr.set("descr", "a red dog")
    deck.save(str(path))
    legacy = f"<p:cmLst {XMLNS}><p:cm><p:text>a comment</p:text></p:cm></p:cmLst>"
    body = f"<m:txBody>{said('a reply')}</m:txBody>"
    modern = f"<m:cmLst {XMLNS} xmlns:m='u'>{body}</m:cmLst>"
    with_parts(
        path,
        {
            "ppt/comments/comment1.xml": (
                TYPES + "presentationml.comments+xml",
                legacy.encode(),
            ),
            "ppt/comments/modern1.xml": (
                "application/vnd.ms-powerpoint.comments+xml",
                modern.encode(),
            ),
        },
    )

    expected = ["the body", "a red dog", "on every slide", "a comment", "a reply"]
    assert sorted(shout_file(path, target)) == sorted(expected)
    written = b"".join(parts(target).values()).decode(errors="replace")
    assert "ON EVERY SLIDE" in written and "A RED DOG" in written and "A COMMENT" in written


def chart_deck(path: Path) -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "the body"
    data = CategoryChartData()
    data.categories = ["red dogs", "SKU-1234", "cats"]
    data.add_series("the sales", (1, 2, 3))
    data.add_series("red dogs", (1, 2, 3))
    shape = (Inches(1), Inches(1), Inches(4), Inches(4))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *shape, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "dogs and cats"
    deck.save(str(path))


def embedded_cells(path: Path) -> list[str]:
    [book] = [data for name, data in parts(path).items() if name.endswith(".xlsx")]
    [sheet] = openpyxl.load_workbook(io.BytesIO(book)).worksheets
    return [cell.value for row in sheet for cell in row if isinstance(cell.value, str)]


def copies(path: Path) -> list[str]:
    [chart] = [data for name, data in parts(path).items() if name.endswith("/charts/chart1.xml")]
    holders = etree.fromstring(chart).iter("{*}strCache")
    return [value.text or "" for holder in holders for value in holder.iter("{*}v")]


def test_names_of_a_chart_are_those_of_its_workbook(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pptx", tmp_path / "b.pptx"
    chart_deck(path)

    fragments = shout_file(path, target)

    texts = ["red dogs", "cats", "the sales"]
    assert fragments == ["the body", "dogs and cats", *texts]
    assert embedded_cells(path) == ["the sales", "red dogs", "red dogs", "SKU-1234", "cats"]
    assert embedded_cells(target) == ["THE SALES", "RED DOGS", "RED DOGS", "SKU-1234", "CATS"]
    assert {*copies(target)} == {*embedded_cells(target)}
    [chart] = [
        shape.chart for shape in pptx.Presentation(str(target)).slides[0].shapes if shape.has_chart
    ]
    assert [*chart.plots[0].categories] == ["RED DOGS", "SKU-1234", "CATS"]
    assert [series.name for series in chart.plots[0].series] == ["THE SALES", "RED DOGS"]
    assert chart.chart_title.text_frame.text == "DOGS AND CATS"
    assert shout_file(target, tmp_path / "c.pptx") == [text.upper() for text in fragments]


def workbook(fill: Callable[[Any], None]) -> bytes:
    target = io.BytesIO()
    book = xlsxwriter.Workbook(target)
    fill(book.add_worksheet("the sheet"))
    book.close()
    return target.getvalue()


def rows(sheet: Any) -> None:
    for row, texts in enumerate([["", "the sales"], ["red dogs", 1], ["the _x0041_", 2]]):
        sheet.write_row(row, 0, texts)


def table(sheet: Any) -> None:
    columns = [{"header": "name"}, {"header": "the sales"}]
    sheet.add_table("A1:B3", {"columns": columns, "data": [["red dogs", 1], ["cats", 2]]})


REFERENCES = names("'the sheet'!$B$1", "the sales") + names("'the sheet'!$A$2:$A$3", "red dogs")
DATA = '<c:externalData r:id="rId1"/>'


def relations(target: str, mode: str = "") -> tuple[str, bytes]:
    relation = f'<Relationship Id="rId1" Type="{RELATIONSHIPS}/package" Target="{target}"{mode}/>'
    return (
        "",
        f'<Relationships xmlns="{PACKAGES}/relationships">{relation}</Relationships>'.encode(),
    )


def with_workbook(folder: str, book: bytes, references: str = REFERENCES) -> dict[str, Any]:
    kind, chart = chart_part(f"<c:ser>{references}</c:ser>")
    return {
        f"{folder}/charts/chart1.xml": (
            kind,
            chart.replace(b"</c:chart>", b"</c:chart>" + DATA.encode()),
        ),
        f"{folder}/charts/_rels/chart1.xml.rels": relations("../embeddings/book1.xlsx"),
        f"{folder}/embeddings/book1.xlsx": ("", book),
    }


@pytest.mark.parametrize(
    ("book", "references", "cells", "shown"),
    [
        (
            workbook(rows),
            REFERENCES,
            ["THE SALES", "RED DOGS", "THE _X0041_"],
            ["THE SALES", "RED DOGS"],
        ),
        (
            workbook(table),
            REFERENCES,
            ["name", "the sales", "RED DOGS", "CATS"],
            ["the sales", "RED DOGS"],
        ),
        # A copy that is not what the cell says stays.
        (
            workbook(rows),
            names("'the sheet'!$B$1", "old"),
            ["THE SALES", "RED DOGS", "THE _X0041_"],
            ["old"],
        ),
        (
            workbook(rows),
            names("A_NAME", "the sales"),
            ["THE SALES", "RED DOGS", "THE _X0041_"],
            ["THE SALES"],
        ),
        (
            workbook(rows),
            names("('the sheet'!$B$1,'the sheet'!$A$3)", "the sales", "the _x005F_x0041_"),
            ["THE SALES", "RED DOGS", "THE _X0041_"],
            ["THE SALES", "THE _X0041_"],
        ),
    ],
)
def test_copies_follow_the_cells_of_any_workbook(
    tmp_path: Path, book: bytes, references: str, cells: list[str], shown: list[str]
) -> None:
    for extension, folder, make in (("docx", "word", make_docx), ("pptx", "ppt", make_pptx)):
        path, target = tmp_path / f"a.{extension}", tmp_path / f"b.{extension}"
        make(path, added=with_workbook(folder, book, references))

        shout_file(path, target)

        assert embedded_cells(target) == cells
        assert copies(target) == shown


@pytest.mark.parametrize("book", [b"no archive", b"", workbook(rows)[:-30]])
def test_names_stay_where_their_workbook_cannot_be_read(tmp_path: Path, book: bytes) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    make_docx(path, added=with_workbook("word", book))

    assert shout_file(path, target) == ["the body"]
    assert copies(target) == ["the sales", "red dogs"]
    assert parts(target)["word/embeddings/book1.xlsx"] == book


def test_names_stay_where_their_workbook_is_elsewhere(tmp_path: Path) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    added = with_workbook("word", b"")
    del added["word/embeddings/book1.xlsx"]
    linked = relations("file.xlsx", ' TargetMode="External"')
    added["word/charts/_rels/chart1.xml.rels"] = linked
    make_docx(path, added=added)

    assert shout_file(path, target) == ["the body"]
    assert copies(target) == ["the sales", "red dogs"]


def test_workbooks_together_unpack_to_no_more_than_an_archive_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.docx"
    make_docx(path, added=with_workbook("word", workbook(rows)))
    monkeypatch.setattr(charts, "MAX_UNPACKED_BYTES", 1_000)

    with pytest.raises(TooLarge, match="workbooks unpack to more than"):
        read_document(path, path.name)

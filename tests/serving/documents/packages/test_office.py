"""Office documents, opened again by the libraries that others read them with: texts are new, all
else is as it was.
"""

import io
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
import xlsxwriter
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import nsdecls, qn
from lxml import etree
from odf import opendocument, style, table, teletype, text
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.worksheet.table import Table
from pptx.util import Inches

from tests.serving.documents.shouting import shout_file, shout_fragment

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154"
    "08d763f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def field(paragraph: Any, instruction: str, text: str) -> None:
    for kind, content in [("begin", ""), ("instr", instruction), ("separate", ""), ("", text)]:
        run = paragraph.add_run(content if kind == "" else "")
        if kind == "instr":
            element = OxmlElement("w:instrText")
            element.text = content
            run._r.append(element)
        elif kind:
            element = OxmlElement("w:fldChar")
            element.set(qn("w:fldCharType"), kind)
            run._r.append(element)
    end = OxmlElement("w:fldChar")
    end.set(qn("w:fldCharType"), "end")
    paragraph.add_run()._r.append(end)


def link(paragraph: Any, address: str, text: str) -> None:
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/hyperlink"
    relation = paragraph.part.relate_to(address, kind, is_external=True)
    namespaces = nsdecls("w", "r")
    paragraph._p.append(
        parse_xml(
            f'<w:hyperlink {namespaces} r:id="{relation}"><w:r><w:rPr><w:u w:val="single"/></w:rPr>'
            f"<w:t>{text}</w:t></w:r></w:hyperlink>"
        )
    )


TEXT_BOX = (
    "<w:r {}><w:pict><v:textbox xmlns:v='urn:schemas-microsoft-com:vml'><w:txbxContent><w:p><w:r>"
    "<w:t>in a box</w:t></w:r></w:p></w:txbxContent></v:textbox></w:pict></w:r>"
)


def make_docx(path: Path) -> None:
    document = docx.Document()
    document.core_properties.title = "a title"
    document.add_heading("the heading", 1)
    paragraph = document.add_paragraph("plain ")
    paragraph.add_run("bold words").bold = True
    paragraph.add_run(" and a ")
    link(paragraph, "https://example.org/a", "link")
    paragraph.add_run(" to follow, ")
    field(paragraph, "PAGE", "seven")
    paragraph.add_run(" ends")
    document.add_paragraph("12.5 %")
    document.add_picture(io.BytesIO(PIXEL))
    document.add_paragraph("beside ")._p.append(parse_xml(TEXT_BOX.format(nsdecls("w"))))
    document.add_table(1, 2).cell(0, 0).text = "in a cell"
    document.sections[0].header.paragraphs[0].text = "the header"
    document.sections[0].footer.paragraphs[0].text = "the footer"
    document.save(str(path))


def parts(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def same_but(path: Path, target: Path, *changed: str) -> None:
    """All parts but the named ones are the same, to the byte, and in the same order."""
    before, after = parts(path), parts(target)
    assert [*before] == [*after]
    differing = {name for name in before if before[name] != after[name]}
    assert differing == {*changed}


def test_docx(tmp_path: Path) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    make_docx(path)

    fragments = shout_file(path, target)

    assert fragments[1] == (
        'plain <g id="1">bold words</g> and a <g id="2"><g id="3">link</g></g> to follow,'
        ' <k id="4">seven</k> ends'
    )
    document = docx.Document(str(target))
    runs = document.paragraphs[1].runs
    assert [(run.text, run.bold) for run in runs if run.text][:3] == [
        ("PLAIN ", None),
        ("BOLD WORDS", True),
        (" AND A ", None),
    ]
    [followed] = document.paragraphs[1].hyperlinks
    assert (followed.text, followed.address) == ("LINK", "https://example.org/a")
    assert document.paragraphs[1].text.endswith(" TO FOLLOW, seven ENDS")
    assert "12.5 %" in [paragraph.text for paragraph in document.paragraphs]
    assert document.tables[0].cell(0, 0).text == "IN A CELL"
    assert document.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert document.sections[0].footer.paragraphs[0].text == "THE FOOTER"
    assert document.core_properties.title == "a title"
    body = etree.tostring(document.element.body).decode()
    assert "IN A BOX" in body and "in a box" not in body
    header, footer = [name for name in parts(path) if "header" in name or "footer" in name]
    same_but(path, target, "word/document.xml", header, footer)
    assert styles_of(path) == styles_of(target)


def styles_of(path: Path) -> list[str | None]:
    return [
        paragraph.style.name if paragraph.style else None
        for paragraph in docx.Document(str(path)).paragraphs
    ]


def test_docx_footnotes_and_tables_of_contents(tmp_path: Path) -> None:
    """A table of contents is a field that goes over several paragraphs; it shows headings."""
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    document = docx.Document()
    first = document.add_paragraph()
    field(first, "TOC", "an entry")
    [*_, end] = first._p
    first._p.remove(end)
    document.add_paragraph("another entry")
    document.add_paragraph()._p.append(end)
    document.add_paragraph("after it")
    document.save(str(path))

    assert shout_file(path, target) == ["an entry", "another entry", "after it"]


def make_pptx(path: Path) -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "a title"
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    paragraph.add_run().text = "first "
    run = paragraph.add_run()
    run.text, run.font.italic = "slanted", True
    run.hyperlink.address = "https://example.org"
    shape = slide.shapes.add_table(1, 2, Inches(1), Inches(1), Inches(4), Inches(1))
    shape.table.cell(0, 0).text = "in a cell"
    slide.notes_slide.notes_text_frame.text = "a note"
    slide.shapes.add_picture(io.BytesIO(PIXEL), 0, 0)
    deck.save(str(path))


def test_pptx(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pptx", tmp_path / "b.pptx"
    make_pptx(path)

    shout_file(path, target)

    slide = pptx.Presentation(str(target)).slides[0]
    assert slide.shapes.title.text == "A TITLE"
    runs = slide.placeholders[1].text_frame.paragraphs[0].runs
    assert [(run.text, run.font.italic) for run in runs] == [("FIRST ", None), ("SLANTED", True)]
    assert runs[1].hyperlink.address == "https://example.org"
    [grid] = [shape.table for shape in slide.shapes if shape.has_table]
    assert grid.cell(0, 0).text == "IN A CELL"
    assert slide.notes_slide.notes_text_frame.text == "A NOTE"
    same_but(path, target, "ppt/slides/slide1.xml", "ppt/notesSlides/notesSlide1.xml")


def make_xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    sheet: Any = book.active
    sheet.title = "a sheet"
    sheet["A1"], sheet["B1"] = "name", "price"
    sheet["A2"], sheet["B2"] = "red apple", 1.5
    sheet["A3"] = CellRichText("half ", TextBlock(InlineFont(b=True), "bold"))
    sheet["B3"] = '=IF(A2="red apple",B2,0)'
    sheet.add_table(Table(displayName="T", ref="A1:B2"))
    book.save(path)


def test_xlsx(tmp_path: Path) -> None:
    path, target = tmp_path / "a.xlsx", tmp_path / "b.xlsx"
    make_xlsx(path)

    shout_file(path, target)

    sheet = openpyxl.load_workbook(target, rich_text=True)["a sheet"]
    assert [sheet[cell].value for cell in ("A1", "B1", "A2", "B2")] == [
        *("name", "price"),  # a table's headers
        *("red apple", 1.5),  # what a formula names
    ]
    rich = sheet["A3"].value
    assert str(rich) == "HALF BOLD" and rich[1].font.b
    assert sheet["B3"].value == '=IF(A2="red apple",B2,0)'
    same_but(path, target, "xl/worksheets/sheet1.xml")  # this library writes texts in their cells


def test_xlsx_with_shared_texts(tmp_path: Path) -> None:
    path, target = tmp_path / "a.xlsx", tmp_path / "b.xlsx"
    book = xlsxwriter.Workbook(path)
    sheet = book.add_worksheet("a sheet")
    sheet.write_string("A1", "once and ")
    sheet.write_rich_string("A2", "half ", book.add_format({"bold": True}), "bold", " word")
    sheet.write_string("A3", "once and ")
    sheet.write_datetime("A4", datetime(2026, 5, 1), book.add_format({"num_format": "mmmm"}))
    sheet.insert_image("B1", "dot.png", {"image_data": io.BytesIO(PIXEL)})
    book.close()

    assert shout_file(path, target) == [
        "once and",
        'half <g id="1">bold</g><g id="2"> word</g>',
    ]
    found = openpyxl.load_workbook(target, rich_text=True)["a sheet"]
    assert [found[cell].value for cell in ("A1", "A3")] == ["ONCE AND "] * 2
    assert [str(part) for part in found["A2"].value] == ["HALF ", "BOLD", " WORD"]
    assert found["A4"].value == datetime(2026, 5, 1)
    same_but(path, target, "xl/sharedStrings.xml")


def make_odt(path: Path) -> None:
    document = opendocument.OpenDocumentText()
    bold = style.Style(name="Bold", family="text")
    bold.addElement(style.TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    heading = text.H(outlinelevel=1, text="the heading")
    document.text.addElement(heading)
    paragraph = text.P(text="plain ")
    paragraph.addElement(text.Span(stylename=bold, text="bold words"))
    paragraph.addText(" and ")
    paragraph.addElement(text.A(href="https://example.org", text="a link"))
    paragraph.addElement(text.LineBreak())
    paragraph.addText("Page ")
    paragraph.addElement(text.PageNumber(text="seven"))
    paragraph.addText(" ends")
    document.text.addElement(paragraph)
    grid = table.Table()
    row = table.TableRow()
    cell = table.TableCell()
    cell.addElement(text.P(text="in a cell"))
    row.addElement(cell)
    grid.addElement(row)
    document.text.addElement(grid)
    document.save(str(path))


def test_odt(tmp_path: Path) -> None:
    path, target = tmp_path / "a.odt", tmp_path / "b.odt"
    make_odt(path)

    fragments = shout_file(path, target)

    assert fragments[1] == (
        'plain <g id="1">bold words</g> and <g id="2">a link</g><br id="3"/>Page'
        ' <k id="4">seven</k> ends'
    )
    document = opendocument.load(str(target))
    paragraphs = document.getElementsByType(text.P)
    assert teletype.extractText(paragraphs[0]) == "PLAIN BOLD WORDS AND A LINK\nPAGE seven ENDS"
    [span] = paragraphs[0].getElementsByType(text.Span)
    assert (teletype.extractText(span), span.getAttribute("stylename")) == ("BOLD WORDS", "Bold")
    assert teletype.extractText(paragraphs[1]) == "IN A CELL"
    same_but(path, target, "content.xml")


@pytest.mark.parametrize(
    ("name", "make"),
    [("a.docx", make_docx), ("a.pptx", make_pptx), ("a.xlsx", make_xlsx), ("a.odt", make_odt)],
)
def test_a_translation_that_changes_nothing_gives_the_same_text(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """Reading what was written gives the same fragments: nothing is lost on the way."""
    path, target = tmp_path / name, tmp_path / f"b-{name}"
    make(path)

    fragments = shout_file(path, target)
    again = shout_file(target, tmp_path / f"c-{name}")

    assert again == [shout_fragment(fragment) for fragment in fragments]

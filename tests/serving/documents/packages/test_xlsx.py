"""Workbooks: what other parts name stays, comments are translated, all other parts are the same."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import xlsxwriter
from lxml import etree

from serving.documents.formats.registry import read_document
from serving.documents.packages.xstrings import decode_xstring, encode_xstring
from serving.errors import RequestError
from tests.serving.documents.packages.test_office import parts, same_but
from tests.serving.documents.shouting import shout_file

COLUMNS = [
    {"header": "product", "total_string": "totals"},
    {"header": "price", "total_function": "sum"},
    {"header": "in all", "formula": "=[@price]*2"},
]
PLAIN = [{"header": "product"}, {"header": "price"}]
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def make(tmp_path: Path, fill: Callable[[Any, Any], None]) -> tuple[Path, Path]:
    path, target = tmp_path / "a.xlsx", tmp_path / "b.xlsx"
    book = xlsxwriter.Workbook(path)
    fill(book, book.add_worksheet("a sheet"))
    book.close()
    return path, target


def cells(path: Path, sheet: str = "a sheet") -> dict[str, Any]:
    worksheet = openpyxl.load_workbook(path)[sheet]
    return {
        cell.coordinate: cell.value for row in worksheet for cell in row if cell.value is not None
    }


def repack(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    archive_parts = parts(path)
    change(archive_parts)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in archive_parts.items():
            archive.writestr(name, data)


def test_a_table_and_what_names_its_columns(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        data = [["red apple", 1], ["pear", 2]]
        sheet.add_table("B3:D6", {"columns": COLUMNS, "data": data, "total_row": True})
        sheet.write("A1", "=SUM(Table1[price])")
        sheet.write("F3", "a title beside")

    path, target = make(tmp_path, fill)

    fragments = shout_file(path, target)

    assert fragments == ["red apple", "pear", "a title beside"]
    texts = cells(target)
    assert [texts[cell] for cell in ("B3", "C3", "D3", "B6")] == [
        *("product", "price", "in all"),
        "totals",
    ]
    assert texts["F3"] == "A TITLE BESIDE"
    [table] = openpyxl.load_workbook(target)["a sheet"].tables.values()
    assert [column.name for column in table.tableColumns] == ["product", "price", "in all"]
    same_but(path, target, "xl/sharedStrings.xml")


def test_a_header_that_other_cells_have_too(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.add_table("A1:B3", {"columns": PLAIN, "data": [["price", 1], ["pear", 2]]})
        book.add_worksheet("other").write("A1", "price")

    path, target = make(tmp_path, fill)

    assert shout_file(path, target) == ["price", "pear"]
    assert [*cells(target).values()] == ["product", "price", "PRICE", 1, "PEAR", 2]
    assert cells(target, "other") == {"A1": "PRICE"}
    same_but(path, target, "xl/sharedStrings.xml", "xl/worksheets/sheet1.xml")


def test_a_header_of_more_looks_than_one(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.add_table("A1:A2", {"columns": [{"header": "unit price"}], "data": [["a pear"]]})
        sheet.write_rich_string("A1", "unit ", book.add_format({"bold": True}), "price")

    path, target = make(tmp_path, fill)

    assert 'unit <g id="1">price</g>' not in shout_file(path, target)
    assert cells(target)["A1"] == "unit price"


def test_a_table_without_a_header(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.add_table("A1:B2", {"header_row": False, "data": [["a dog", "a cat"]]})

    path, target = make(tmp_path, fill)

    assert shout_file(path, target) == ["a dog", "a cat"]


def test_the_header_of_a_pivot_table(tmp_path: Path) -> None:
    cache = "xl/pivotCache/pivotCacheDefinition1.xml"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.pivotCacheDefinition+xml"

    def add_cache(archive_parts: dict[str, bytes]) -> None:
        archive_parts[cache] = (
            f'<pivotCacheDefinition xmlns="{MAIN}"><cacheSource type="worksheet"><worksheetSource'
            ' ref="A1:B2" sheet="a sheet"/></cacheSource></pivotCacheDefinition>'
        ).encode()
        types = archive_parts["[Content_Types].xml"]
        override = f'<Override PartName="/{cache}" ContentType="{kind}"/></Types>'.encode()
        archive_parts["[Content_Types].xml"] = types.replace(b"</Types>", override)

    def fill(book: Any, sheet: Any) -> None:
        for row, texts in enumerate([["fruit", "colour"], ["apple", "red"]]):
            sheet.write_row(row, 0, texts)

    path, target = make(tmp_path, fill)
    repack(path, add_cache)

    assert shout_file(path, target) == ["apple", "red"]


@pytest.mark.parametrize(
    ("text", "is_translated"),
    [
        ("SKU-1234", False),
        ("user_id", False),
        ("ann@example.org", False),
        ("https://example.org/a", False),
        ("camelCase", False),
        ("1234", False),
        ("12kg", False),
        ("A1", False),
        ("two words 12", True),
        ("2nd", True),
        ("3-year-old", True),
        ("20th-century", True),
        ("Name", True),
        ("YES", True),
    ],
)
def test_codes(tmp_path: Path, text: str, is_translated: bool) -> None:
    path, target = make(tmp_path, lambda book, sheet: sheet.write_string("A1", text))

    assert shout_file(path, target) == ([text] if is_translated else [])


def test_formulas_and_what_they_gave_stay(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.write_formula("A1", '=IF(B1="yes","a dog","a cat")', None, "a dog")
        sheet.write("A2", "a bird")
        book.define_name("a_name", "='a sheet'!$A$1")

    path, target = make(tmp_path, fill)

    assert shout_file(path, target) == ["a bird"]
    same_but(path, target, "xl/sharedStrings.xml")


def test_lines_and_escaped_characters_of_a_cell(tmp_path: Path) -> None:
    text = "First line.\nSecond line._x000D_\n- third & <b>last</b> {name}  12"
    path, target = make(tmp_path, lambda book, sheet: sheet.write_string("A1", text))
    repack(
        path, lambda archive_parts: archive_parts.update({"xl/sharedStrings.xml": strings(text)})
    )

    shout_file(path, target)

    shout_fragment = "FIRST LINE.\nSECOND LINE._x000D_\n- THIRD & <b>LAST</b> {name}  12"
    assert parts(target)["xl/sharedStrings.xml"] == strings(shout_fragment)


def strings(text: str) -> bytes:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    head = "<?xml version='1.0' encoding='UTF-8'?>\n"
    return f'{head}<sst xmlns="{MAIN}"><si><t>{escaped}</t></si></sst>'.encode()


def test_pronunciations_of_other_words_go(tmp_path: Path) -> None:
    phonetic = b'<si><t>a dog</t><rPh sb="0" eb="1"><t>inu</t></rPh><phoneticPr fontId="1"/></si>'
    path, target = make(tmp_path, lambda book, sheet: sheet.write_string("A1", "a dog"))

    def change(archive_parts: dict[str, bytes]) -> None:
        texts = archive_parts["xl/sharedStrings.xml"]
        archive_parts["xl/sharedStrings.xml"] = texts.replace(b"<si><t>a dog</t></si>", phonetic)

    repack(path, change)
    assert shout_file(path, target) == ["a dog"]
    assert b"<si><t>A DOG</t></si>" in parts(target)["xl/sharedStrings.xml"]


def test_comments(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.write_comment("A1", "a note here", {"author": "Ann Lee"})
        sheet.write_comment("A2", "old words", {"author": "tc={1-2}"})

    path, target = make(tmp_path, fill)

    assert shout_file(path, target) == ["a note here"]
    found = openpyxl.load_workbook(target)["a sheet"]
    first, second = found["A1"].comment, found["A2"].comment
    assert first and second
    assert (first.text, first.author) == ("A NOTE HERE", "Ann Lee")
    assert second.text == "old words"
    same_but(path, target, "xl/comments1.xml")


def test_the_author_at_the_beginning_of_a_comment_stays(tmp_path: Path) -> None:
    runs = (
        b"<text><r><rPr><b/></rPr><t>Ann Lee:</t></r>"
        b'<r><rPr><i/></rPr><t xml:space="preserve">\n</t></r>'
        b"<r><rPr><i/></rPr><t>a note</t></r></text>"
    )

    def change(archive_parts: dict[str, bytes]) -> None:
        before, _, rest = archive_parts["xl/comments1.xml"].partition(b"<text>")
        archive_parts["xl/comments1.xml"] = before + runs + rest.partition(b"</text>")[2]

    path, target = make(
        tmp_path, lambda _, sheet: sheet.write_comment("A1", "x", {"author": "Ann Lee"})
    )
    repack(path, change)

    assert shout_file(path, target) == ["a note"]
    changed = runs.replace(b"a note", b"A NOTE")
    assert changed in parts(target)["xl/comments1.xml"].replace(b"&#10;", b"\n")


def test_threads_of_comments(tmp_path: Path) -> None:
    name = "xl/threadedComments/threadedComment1.xml"
    threads = (
        '<ThreadedComments xmlns="http://schemas.microsoft.com/office/spreadsheetml/2018/'
        'threadedcomments"><threadedComment ref="A1" id="{1}"><text>a question</text>'
        '</threadedComment><threadedComment ref="A1" id="{2}"><text>@Ann look</text><mentions>'
        '<mention startIndex="0" length="4"/></mentions></threadedComment></ThreadedComments>'
    )
    path, target = make(tmp_path, lambda book, sheet: sheet.write("A1", 1))
    override = (
        f'<Override PartName="/{name}" '
        'ContentType="application/vnd.ms-excel.threadedcomments+xml"/></Types>'
    )

    def change(archive_parts: dict[str, bytes]) -> None:
        archive_parts[name] = threads.encode()
        types = archive_parts["[Content_Types].xml"]
        archive_parts["[Content_Types].xml"] = types.replace(b"</Types>", override.encode())

    repack(path, change)
    assert shout_file(path, target) == ["a question"]
    assert threads.replace("a question", "A QUESTION").encode() in parts(target)[name]


@pytest.mark.parametrize(
    "change",
    [
        (b'ref="A1:B3"', b'ref="nonsense"'),
        (b'ref="A1:B3"', b'ref="A1:ZZZ99999999"'),
        (b'headerRowCount="1"', b'headerRowCount="x"'),
        (b"../tables/table1.xml", b"../../../tables/none.xml"),
        (b"<v>0</v>", b"<v>999</v>"),
        (b"<v>0</v>", b"<v>x</v>"),
        (b"<v>0</v>", b""),
        (b't="s"', b't="inlineStr"'),
        (b'r="A1"', b""),
        (b"<si>", b"<si><x/>"),
    ],
)
def test_odd_workbooks(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    """They are translated, or refused as what they are."""

    def fill(book: Any, sheet: Any) -> None:
        sheet.add_table("A1:B3", {"columns": COLUMNS[:2], "data": [["price", 1], ["pear", 2]]})

    path, target = make(tmp_path, fill)

    def replace(archive_parts: dict[str, bytes]) -> None:
        for name, data in archive_parts.items():
            archive_parts[name] = data.replace(*change)

    repack(path, replace)
    try:
        shout_file(path, target)
    except RequestError:
        return
    assert read_document(target, target.name)


def test_texts_that_formulas_choices_and_filters_name(tmp_path: Path) -> None:
    """`=IF(A1="Yes", ...)` has to find in its cell what it found before."""

    def fill(book: Any, sheet: Any) -> None:
        texts = ["Yes", "no", "North & East", "a dog", 'the "big" one', "late"]
        sheet.write_column("A1", texts)
        sheet.write("B1", '=IF(A1="yes","a cat","none")&COUNTIF(A:A,"North & East")')
        sheet.write("B2", '=A5="the ""big"" one"')
        sheet.data_validation("A2", {"validate": "list", "source": ["Maybe", "No"]})
        sheet.autofilter("D1:D3")
        sheet.filter_column("D", "x == late")
        sheet.write_rich_string("C1", "foxes ", book.add_format({"bold": True}), "go")

    path, target = make(tmp_path, fill)

    assert shout_file(path, target) == ["a dog", 'foxes <g id="1">go</g>']
    assert cells(target)["A4"] == "A DOG"


# A string as files have it, the fragment that it is, and its translation as files have it.
ESCAPES = [
    ("a dog_x000D_\nruns", 'a dog<br id="2"/>runs', "A DOG_x000D_\nRUNS"),
    ("a dog_x000d_", "a dog", "A DOG_x000D_"),
    ("_x0041_ dog", "A dog", "A DOG"),
    ("the _x005F_x0041_ dog", "the _x0041_ dog", "THE _X0041_ DOG"),
    ("the _x005F_ dog", "the _ dog", "THE _ DOG"),
    ("the _x005F_x000d_ dog", "the _x000d_ dog", "THE _X000D_ DOG"),
    ("a _xD83D__xDE00_ dog", "a \U0001f600 dog", "A \U0001f600 DOG"),
    ("a bell_x0007_ rings", 'a bell<br id="2"/> rings', "A BELL_x0007_ RINGS"),
    ("a bell_x0000__x000B_ rings", 'a bell<br id="2"/> rings', "A BELL_x0000__x000B_ RINGS"),
    ("half_xD83D_ a pair", 'half<br id="2"/> a pair', "HALF_xD83D_ A PAIR"),
    ("two_x0009_columns", 'two<br id="2"/>columns', "TWO\tCOLUMNS"),
    ("a _x26 dog", "a _x26 dog", "A _X26 DOG"),
    ("caf_x00E9_ noir", "café noir", "CAFÉ NOIR"),
]


@pytest.mark.parametrize(("written", "fragment", "translation"), ESCAPES)
def test_escapes_are_the_characters_that_they_stand_for(
    tmp_path: Path, written: str, fragment: str, translation: str
) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.write_string("A1", "plain")
        sheet.write_rich_string("A2", "rich ", book.add_format({"bold": True}), "text")
        sheet.write_comment("A1", "noted")

    path, target = make(tmp_path, fill)

    def change(archive_parts: dict[str, bytes]) -> None:
        text = written.encode()
        for name in [
            name for name in archive_parts if "sharedStrings" in name or "comments" in name
        ]:
            content = archive_parts[name].replace(b"<t>plain<", b"<t>" + text + b"<")
            content = content.replace(b">noted<", b">" + text + b"<")
            archive_parts[name] = content.replace(b">text<", b">" + text + b"<")

    repack(path, change)

    fragments = shout_file(path, target)

    numbers = re.compile(r' id="\d+"')
    assert numbers.sub("", fragments[0]) == numbers.sub("", fragment)
    assert numbers.sub("", fragment) in numbers.sub("", fragments[1])
    written_files = parts(target)
    strings = etree.fromstring(written_files["xl/sharedStrings.xml"])
    plain, rich = ("".join(map(str, item.itertext())) for item in strings)
    assert (plain, rich) == (translation, "RICH " + translation)
    [comments] = [name for name in written_files if "comments" in name]
    assert translation in "".join(map(str, etree.fromstring(written_files[comments]).itertext()))


def test_what_looks_like_an_escape_is_escaped_again(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.write_string("A1", "the _x0041_ dog")
        sheet.write_rich_string("A2", "the ", book.add_format({"bold": True}), "dog")

    def change(archive_parts: dict[str, bytes]) -> None:
        strings = archive_parts["xl/sharedStrings.xml"].replace(
            b"<t>dog<", b"<t>_x005F_x0041_ dog<"
        )
        archive_parts["xl/sharedStrings.xml"] = strings

    path, target = make(tmp_path, fill)
    repack(path, change)
    document = read_document(path, path.name)
    document.write(document.fragments, target, "fr")

    assert parts(target)["xl/sharedStrings.xml"].count(b"_x005F_x0041_ dog") == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "_",
        "_x",
        "_x0041_",
        "_x005F_",
        "__x0041__",
        "\r\n",
        "\r",
        "é\t\n",
        "_X0041_",
        "\U0001f600",
    ],
)
def test_an_escaped_string_means_the_text_again(text: str) -> None:
    assert decode_xstring(encode_xstring(text)) == text


def test_texts_that_formulas_name_are_compared_unescaped(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.write_row("A1", ["red_x0020_apple", "a pear"])
        sheet.write_formula("A2", '=IF(A1="red apple",1,0)')

    path, target = make(tmp_path, fill)
    repack(
        path,
        lambda archive_parts: archive_parts.update(
            {
                "xl/sharedStrings.xml": archive_parts["xl/sharedStrings.xml"].replace(
                    b"_x005F_x0020_", b"_x0020_"
                )
            }
        ),
    )

    assert shout_file(path, target) == ["a pear"]


def test_text_boxes_and_charts(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        for row, texts in enumerate([["", "the sales"], ["red dogs", 1], ["cats", 2]]):
            sheet.write_row(row, 0, texts)
        sheet.insert_textbox("D1", "in a box")
        chart = book.add_chart({"type": "column"})
        of_sheet = "='a sheet'!"
        chart.add_series(
            {
                "name": of_sheet + "$B$1",
                "categories": of_sheet + "$A$2:$A$3",
                "values": of_sheet + "$B$2:$B$3",
            }
        )
        chart.set_title({"name": "a title"})
        sheet.insert_chart("D9", chart)

    path, target = make(tmp_path, fill)

    assert shout_file(path, target) == ["the sales", "red dogs", "cats", "a title", "in a box"]
    chart = parts(target)["xl/charts/chart1.xml"].decode()
    for text in ("A TITLE", "THE SALES", "RED DOGS", "CATS"):
        assert f">{text}<" in chart
    assert cells(target) == {"B1": "THE SALES", "A2": "RED DOGS", "B2": 1, "A3": "CATS", "B3": 2}
    drawing = "xl/drawings/drawing1.xml"
    same_but(path, target, "xl/sharedStrings.xml", "xl/charts/chart1.xml", drawing)

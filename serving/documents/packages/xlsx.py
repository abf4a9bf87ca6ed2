"""Read and write .xlsx: cells with text, text boxes, charts, and comments.

Formulas, numbers, dates, codes and sheet names stay. So do cells whose text other parts of the
workbook name: tables and pivot tables name columns by their header cells, and Excel repairs a
workbook where they differ; formulas, lists of choices and filters compare cells with texts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import BinaryIO

from lxml import etree

from serving.documents.document import Document
from serving.documents.fragment import Fragment
from serving.documents.messages import split_message
from serving.documents.packages.drawing import DRAWING_PARTS, drawing_paragraphs
from serving.documents.packages.office import (
    OfficeDocument,
    PackagePart,
    Paragraph,
    ZipPackage,
    keep_with_words,
    open_package,
    parts_of_type,
    read_parts,
)
from serving.documents.packages.run_pieces import ParagraphSchema
from serving.documents.packages.runs import RunParagraph
from serving.documents.packages.xlsx_cells import (
    SHARED_TEXTS,
    SHEETS,
    CellRange,
    Cells,
    cell_text,
    named_cells,
    quoted_texts,
    shared_index,
    update_copies,
)
from serving.documents.packages.xstrings import SEPARATORS, decode_xstring, encode_xstring
from serving.documents.spans import InlineMark, MarkRole, TextSpan
from serving.documents.xml_trees import parse_xml, set_text, xml_bytes

Element = etree._Element
MAIN_TYPE = "spreadsheetml.sheet"
_COMMENTS = "spreadsheetml.comments+xml"
_DRAWING = "officedocument.drawing+xml"
_THREADS = "ms-excel.threadedcomments+xml"
_PRONUNCIATION = frozenset({"rPh", "phoneticPr"})
_SCHEMA = ParagraphSchema(leading=frozenset(), dropped=_PRONUNCIATION, separators=SEPARATORS)
_SEPARATORS = re.compile(f"({SEPARATORS})")
# Codes rather than words: SKU-1234, user_id, ann@example.org, camelCase.
_CODE = re.compile(r"(?=\S*[\d_@]|\S*[a-z][A-Z]|\w+://)\S+")
_NUMBER_WORD = re.compile(r"\d+(?:(?:st|nd|rd|th)|(?:st|nd|rd|th)?(?:-[a-z]{3,})+)")
# Excel adds these comments for programs that cannot read threads.
_AUTHOR_OF_THREADS = "tc="


class PlainText:
    """A text of a cell, a comment or a chart without runs."""

    def __init__(self, item: Element, text: Element) -> None:
        self._item, self._text = item, text
        self._span = TextSpan(0, 0, [*_pieces(decode_xstring(text.text or ""))])
        self.fragment: Fragment = self._span.fragment

    def write(self, translation: str) -> None:
        set_text(self._text, encode_xstring(self._span.apply_translation(translation)))
        for child in [*self._item]:
            if etree.QName(child).localname in _PRONUNCIATION:
                self._item.remove(child)


class RichText:
    """A text of a cell or a comment with runs.

    author: the run of a comment with its author's name, with which Excel begins it; it stays.
    """

    def __init__(self, item: Element, author: Element | None = None) -> None:
        self._item, self._author = item, author
        self._decoded = deepcopy(item)
        if author is not None:
            self._decoded.remove(self._decoded[item.index(author)])
        for text in self._decoded.iter("{*}t"):
            text.text = decode_xstring(text.text or "")
        self._paragraph = RunParagraph(self._decoded, _SCHEMA)
        self.fragment: Fragment = self._paragraph.fragment

    def write(self, translation: str) -> None:
        self._paragraph.write(translation)
        for text in self._decoded.iter("{*}t"):
            text.text = encode_xstring(text.text or "")
        self._item[:] = [*([] if self._author is None else [self._author]), *self._decoded]


def read_xlsx(path: Path) -> Document:
    """Read a workbook. Raises RequestError."""
    _, document = read_workbook(path)
    return document


def read_workbook(source: Path | BinaryIO) -> tuple[ZipPackage, OfficeDocument]:
    """Return the archive of a workbook, and its texts. Raises RequestError."""
    package, types = open_package(source, MAIN_TYPE)
    named, quoted = named_cells(package, types), quoted_texts(package, types)
    needs_all = any(named.values())
    sheets = {
        name: parse_xml(package.read(name), name)
        for name in parts_of_type(types, SHEETS)
        if needs_all or b"inlineStr" in package.read(name)
    }
    shared = [
        (name, parse_xml(package.read(name), name))
        for name in parts_of_type(types, SHARED_TEXTS)[:1]
    ]
    items = [item for _, tree in shared for item in tree.getroot().iter("{*}si")]
    only_named, also_named = _indices_of_named(sheets, named)
    translated = [item for n, item in enumerate(items) if str(n) not in only_named]
    parts = [
        *(
            PackagePart(name, tree, keep_with_words(_texts(translated, quoted)))
            for name, tree in shared
        ),
        *(
            _sheet(name, tree, named[name], also_named, items, quoted)
            for name, tree in sheets.items()
        ),
        *read_parts(package, parts_of_type(types, _COMMENTS), _comments),
        *read_parts(package, parts_of_type(types, _THREADS), _threaded_comments),
    ]
    drawings = [
        *read_parts(package, parts_of_type(types, _DRAWING, *DRAWING_PARTS), drawing_paragraphs)
    ]
    return package, OfficeDocument(package, [*parts, *drawings], [OwnCharts(package, drawings)])


def _texts(items: Iterable[Element], quoted: frozenset[str] = frozenset()) -> Iterator[Paragraph]:
    """Yield the texts of items that have text or runs, as cells do.

    quoted: texts in lower case that formulas compare cells with; they stay.
    """
    for item in items:
        text = item.find("{*}t")
        if cell_text(item).strip().lower() in quoted:
            continue
        if text is None:
            yield RichText(item)
        elif not _is_code(decode_xstring(text.text or "").strip()):
            yield PlainText(item, text)


def _is_code(text: str) -> bool:
    return bool(_CODE.fullmatch(text)) and not _NUMBER_WORD.fullmatch(text)


def _pieces(text: str) -> Iterator[str | InlineMark]:
    for part in _SEPARATORS.split(text):
        if _SEPARATORS.match(part):
            yield InlineMark(part, MarkRole.SENTENCE_END)
        else:
            yield from split_message(part)


def _indices_of_named(
    sheets: Mapping[str, etree._ElementTree], named: Mapping[str, Sequence[CellRange]]
) -> tuple[set[str], set[str]]:
    """Return the shared texts of named cells only, and those that other cells use too."""
    of_named: set[str] = set()
    of_others: set[str] = set()
    for name, tree in sheets.items():
        for cell in tree.getroot().iter("{*}c"):
            if (index := shared_index(cell)) is not None:
                (of_named if _is_named(cell, named[name]) else of_others).add(index)
    return of_named - of_others, of_named & of_others


def _is_named(cell: Element, ranges: Iterable[CellRange]) -> bool:
    return any(cell.get("r", "") in cells for cells in ranges)


def _sheet(
    name: str,
    tree: etree._ElementTree,
    named: Sequence[CellRange],
    also_named: set[str],
    shared: Sequence[Element],
    quoted: frozenset[str],
) -> PackagePart:
    """Read a sheet; named cells get their own copies of texts that other cells use too."""
    cells = [*tree.getroot().iter("{*}c")]
    is_changed = False
    for cell in cells if named else ():
        index = shared_index(cell)
        if index in also_named and _is_named(cell, named) and int(index) < len(shared):
            _give_own_text(cell, shared[int(index)])
            is_changed = True
    texts = [text for cell in cells if not _is_named(cell, named) for text in cell.iter("{*}is")]
    return PackagePart(name, tree, keep_with_words(_texts(texts, quoted)), is_changed)


def _give_own_text(cell: Element, shared: Element) -> None:
    value = cell.find("{*}v")
    assert value is not None  # because the cell has a shared text
    cell.set("t", "inlineStr")
    inline = cell.makeelement(etree.QName(etree.QName(cell).namespace, "is"))
    inline.extend(map(deepcopy, shared))
    cell.replace(value, inline)


def _comments(root: Element) -> Iterator[Paragraph]:
    authors = [(element.text or "").strip() for element in root.iter("{*}author")]
    for comment in root.iter("{*}comment"):
        number = comment.get("authorId", "")
        author = authors[int(number)] if number.isdecimal() and int(number) < len(authors) else ""
        text = comment.find("{*}text")
        if text is None or author.startswith(_AUTHOR_OF_THREADS):
            continue
        first = next(iter(text.iterchildren("{*}r")), None)
        if first is not None and author and cell_text(first).strip() == f"{author}:":
            yield RichText(text, first)
        else:
            yield from _texts([text])


def _threaded_comments(root: Element) -> Iterator[Paragraph]:
    """Yield comments. Those that mention people stay, because they name positions in the text."""
    for comment in root.iter("{*}threadedComment"):
        text = comment.find("{*}text")
        if text is not None and comment.find("{*}mentions") is None:
            yield PlainText(comment, text)


class OwnCharts:
    """The charts of a workbook, which show texts of its cells."""

    fragments: Sequence[str] = ()

    def __init__(self, package: ZipPackage, drawings: Iterable[PackagePart]) -> None:
        self._package = package
        self._charts = [
            part for part in drawings if next(part.tree.getroot().iter("{*}f"), None) is not None
        ]

    def write(
        self, translations: Sequence[str], changed: Mapping[str, bytes], language: str
    ) -> Mapping[str, bytes]:
        """Return the charts with the texts of the cells that are changed."""
        if not self._charts:
            return {}
        before, after = Cells(self._package), Cells(self._package, changed)
        return {
            chart.name: xml_bytes(chart.tree)
            for chart in self._charts
            if update_copies(chart.tree.getroot(), before, after)
        }

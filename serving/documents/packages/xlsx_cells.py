"""Find the texts of a workbook's cells, those that other parts name, and the copies in charts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape

from lxml import etree

from serving.documents.packages.office import (
    ZipPackage,
    content_types,
    parts_of_type,
    read_relations,
)
from serving.documents.packages.ranges import local_name
from serving.documents.packages.xstrings import decode_xstring, encode_xstring
from serving.documents.xml_trees import parse_xml

Element = etree._Element
SHARED_TEXTS = "spreadsheetml.sharedStrings+xml"
SHEETS = "spreadsheetml.worksheet+xml"
_WORKBOOK = "spreadsheetml.sheet.main+xml"
_PIVOT_CACHES = "spreadsheetml.pivotCacheDefinition+xml"
_FORMULA = re.compile(r"<(?:\w+:)?(?:f|formula[12]?)(?:\s[^<>]*)?>([^<]*)<")
_FILTER = re.compile(r"<(?:\w+:)?(?:filter|customFilter)\s[^<>]*?\bval=\"([^\"]*)\"")
_LITERAL = re.compile(r"\"((?:[^\"]|\"\")*)\"")
_CELL = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})\Z")
# Elements with the reference to cells, and the copies of their texts.
_COPIES = frozenset({"strRef", "multiLvlStrRef", "datalabelsRange", "strDim", "txData"})
_REFERENCE = re.compile(
    r"(?:'((?:[^']|'')+)'|([^'!(),]+))!(\$?[A-Z]{1,3}\$?\d{1,7}(?::\$?[A-Z]{1,3}\$?\d{1,7})?)"
)


@dataclass(frozen=True)
class CellRange:
    """The cells of a sheet between two corners."""

    first_column: int
    first_row: int
    last_column: int
    last_row: int

    def __contains__(self, cell: str) -> bool:
        place = _place(cell)
        if place is None:
            return False
        column, row = place
        is_in_columns = self.first_column <= column <= self.last_column
        return is_in_columns and self.first_row <= row <= self.last_row

    def rows(self, first: int, last: int) -> "CellRange":
        return CellRange(self.first_column, first, self.last_column, last)


def shared_index(cell: Element) -> str | None:
    value = cell.findtext("{*}v", "").strip() if cell.get("t") == "s" else ""
    return value if value.isdecimal() else None


def cell_text(element: Element) -> str:
    """Return the text of a cell or of a part of it, without how it is pronounced."""
    spoken = {text for part in element.iter("{*}rPh") for text in part.iter("{*}t")}
    texts = (text for text in element.iter("{*}t") if text not in spoken)
    return "".join(decode_xstring(text.text or "") for text in texts)


def named_cells(package: ZipPackage, types: Mapping[str, str]) -> dict[str, list[CellRange]]:
    """Return the cells that other parts name, by the parts of sheets."""
    ranges_by_sheet: dict[str, list[CellRange]] = {
        name: [] for name in parts_of_type(types, SHEETS)
    }
    for sheet, ranges in ranges_by_sheet.items():
        for table in _related_parts(package, sheet, "table"):
            ranges += _label_rows(parse_xml(package.read(table), table).getroot())
    by_name = _sheets_by_name(package, types)
    for name in parts_of_type(types, _PIVOT_CACHES):
        for source in parse_xml(package.read(name), name).iter("{*}worksheetSource"):
            whole = _range(source.get("ref", ""))
            sheet = by_name.get(source.get("sheet", ""), "")
            if whole and sheet in ranges_by_sheet:
                ranges_by_sheet[sheet].append(whole.rows(whole.first_row, whole.first_row))
    return ranges_by_sheet


def quoted_texts(package: ZipPackage, types: Mapping[str, str]) -> frozenset[str]:
    """Return the texts in lower case that formulas, lists of choices and filters name."""
    quoted: set[str] = set()
    for name in parts_of_type(types, SHEETS):
        sheet = package.read(name).decode(errors="replace")
        quoted.update(map(unescape, _FILTER.findall(sheet)))
        for formula in map(unescape, _FORMULA.findall(sheet)):
            literals = (
                literal.replace('""', '"') for literal in _LITERAL.findall(decode_xstring(formula))
            )
            quoted.update(text for literal in literals for text in (literal, *literal.split(",")))
    return frozenset(text.strip().lower() for text in quoted)


def _label_rows(table: etree._Element) -> Iterator[CellRange]:
    """Yield the header and the totals row of a table."""
    whole = _range(table.get("ref", ""))
    if whole is None:
        return
    if table.get("headerRowCount", "1") != "0":
        yield whole.rows(whole.first_row, whole.first_row)
    if table.get("totalsRowCount", "0") != "0":
        yield whole.rows(whole.last_row, whole.last_row)


def _sheets_by_name(package: ZipPackage, types: Mapping[str, str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for workbook in parts_of_type(types, _WORKBOOK):
        parts = read_relations(package, workbook)
        for sheet in parse_xml(package.read(workbook), workbook).iter("{*}sheet"):
            ids = [value for key, value in sheet.attrib.items() if str(key).endswith("}id")]
            _, part = parts.get(str(next(iter(ids), "")), ("", ""))
            names[sheet.get("name", "")] = part
    return names


def _related_parts(package: ZipPackage, part: str, kind: str) -> list[str]:
    relations = read_relations(package, part).values()
    return [other for relation, other in relations if relation == kind and other in package.names]


def _range(reference: str) -> CellRange | None:
    first, _, last = reference.partition(":")
    begin, end = _place(first), _place(last or first)
    return CellRange(*begin, *end) if begin and end else None


def _place(cell: str) -> tuple[int, int] | None:
    """Return the column and row of a cell, from 1."""
    match = _CELL.match(cell)
    if match is None:
        return None
    column = 0
    for letter in match[1]:
        column = column * 26 + ord(letter) - ord("A") + 1
    return column, int(match[2])


class Cells:
    """The texts of the cells of a workbook. changed: parts that are to be written, by name."""

    def __init__(self, package: ZipPackage, changed: Mapping[str, bytes] | None = None) -> None:
        self._package, self._changed = package, changed or {}
        types = content_types(package)
        self._sheets = _sheets_by_name(package, types)
        self._shared = [
            cell_text(item)
            for name in parts_of_type(types, SHARED_TEXTS)[:1]
            for item in self._root(name).iter("{*}si")
        ]
        self._texts_by_sheet: dict[str, dict[str, str]] = {}

    def texts(self, references: Sequence[tuple[str, str]]) -> list[str]:
        """Return the texts of cells with text. references: sheets and ranges; none means all."""
        texts: list[str] = []
        for sheet, reference in references or [(name, "") for name in self._sheets]:
            cells, name = _range(reference), self._sheets.get(sheet)
            for cell, text in self._sheet_texts(name).items() if name else ():
                if cells is None or cell in cells:
                    texts.append(text)
        return texts

    def _sheet_texts(self, name: str) -> dict[str, str]:
        if name not in self._texts_by_sheet:
            cells = self._root(name).iter("{*}c")
            texts = {cell.get("r", ""): self._text(cell) for cell in cells}
            self._texts_by_sheet[name] = {
                cell: text for cell, text in texts.items() if text is not None
            }
        return self._texts_by_sheet[name]

    def _root(self, name: str) -> Element:
        content = self._changed.get(name) or self._package.read(name)
        return parse_xml(content, name).getroot()

    def _text(self, cell: Element) -> str | None:
        if (index := shared_index(cell)) is not None:
            return self._shared[int(index)] if int(index) < len(self._shared) else None
        if cell.get("t") == "inlineStr":
            return cell_text(cell)
        return None


def update_copies(root: Element, before: Cells, after: Cells) -> bool:
    """Give the copies of cells in a chart the texts that the cells have now. Return whether any is
    another than before.
    """
    is_changed = False
    for formula in root.iter("{*}f"):
        holder = formula.getparent()
        if holder is None or local_name(holder) not in _COPIES:
            continue
        cells = [  # none for a name that the workbook defines
            (one.replace("''", "'") or other, reference)
            for one, other, reference in _REFERENCE.findall(formula.text or "")
        ]
        texts = dict(zip(before.texts(cells), after.texts(cells), strict=True))
        for copy in holder.iter("{*}v", "{*}pt"):
            text = decode_xstring(copy.text or "")
            if texts.get(text, text) != text and not len(copy):
                copy.text = encode_xstring(texts[text])
                is_changed = True
    return is_changed

"""Finds the cells of a workbook whose text other parts of it name, and so must not change.

Tables name their columns as their header cells do, as do the pivot tables of a range of cells:
Excel repairs a workbook where they differ, and formulas name columns as well. Formulas compare
cells with texts, `=IF(A1="Yes", ...)`, and lists of choices and filters name them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from posixpath import dirname, join, normpath

from lxml import etree

from serving.documents.formats.office import parts_of
from serving.documents.parts.package import Package
from serving.documents.parts.xml import parse_xml

SHEETS = "spreadsheetml.worksheet+xml"
_WORKBOOK = "spreadsheetml.sheet.main+xml"
_PIVOT_CACHES = "spreadsheetml.pivotCacheDefinition+xml"
_FORMULA = re.compile(r"<(?:\w+:)?(?:f|formula[12]?)(?:\s[^<>]*)?>([^<]*)<")
_FILTER = re.compile(r"<(?:\w+:)?(?:filter|customFilter)\s[^<>]*?\bval=\"([^\"]*)\"")
_LITERAL = re.compile(r"\"((?:[^\"]|\"\")*)\"")
_CELL = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})\Z")


@dataclass(frozen=True)
class CellRange:
    """Holds the places of cells in a sheet, from one to another."""

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


def named_cells(package: Package, types: Mapping[str, str]) -> dict[str, list[CellRange]]:
    """Return, by the parts of sheets, where cells are that other parts name."""
    found: dict[str, list[CellRange]] = {name: [] for name in parts_of(types, SHEETS)}
    for sheet, ranges in found.items():
        for table in _related(package, sheet, "table"):
            ranges += _of_table(parse_xml(package.read(table), table).getroot())
    by_name = _sheets_by_name(package, types)
    for name in parts_of(types, _PIVOT_CACHES):
        for source in parse_xml(package.read(name), name).iter("{*}worksheetSource"):
            whole = _range(source.get("ref", ""))
            sheet = by_name.get(source.get("sheet", ""), "")
            if whole and sheet in found:
                found[sheet].append(whole.rows(whole.first_row, whole.first_row))
    return found


def quoted_texts(package: Package, types: Mapping[str, str]) -> frozenset[str]:
    """Return, in lower case, the texts that formulas, lists of choices and filters name."""
    found: set[str] = set()
    for name in parts_of(types, SHEETS):
        sheet = package.read(name).decode(errors="replace")
        found.update(map(unescape, _FILTER.findall(sheet)))
        for formula in map(unescape, _FORMULA.findall(sheet)):
            literals = (each.replace('""', '"') for each in _LITERAL.findall(formula))
            found.update(text for each in literals for text in (each, *each.split(",")))
    return frozenset(text.strip().lower() for text in found)


def _of_table(table: etree._Element) -> Iterator[CellRange]:
    """Yield a table's header, and its row of totals."""
    whole = _range(table.get("ref", ""))
    if whole is None:
        return
    if table.get("headerRowCount", "1") != "0":
        yield whole.rows(whole.first_row, whole.first_row)
    if table.get("totalsRowCount", "0") != "0":
        yield whole.rows(whole.last_row, whole.last_row)


def _sheets_by_name(package: Package, types: Mapping[str, str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for workbook in parts_of(types, _WORKBOOK):
        parts = _relations(package, workbook)
        for sheet in parse_xml(package.read(workbook), workbook).iter("{*}sheet"):
            ids = [value for key, value in sheet.attrib.items() if str(key).endswith("}id")]
            _, part = parts.get(str(next(iter(ids), "")), ("", ""))
            names[sheet.get("name", "")] = part
    return names


def _related(package: Package, part: str, kind: str) -> list[str]:
    relations = _relations(package, part).values()
    return [other for own, other in relations if own == kind and other in package.names]


def _relations(package: Package, part: str) -> dict[str, tuple[str, str]]:
    """Return the kinds and the parts that a part refers to, by its names for them."""
    folder = dirname(part)
    name = join(folder, "_rels", part.rpartition("/")[2] + ".rels")
    if name not in package.names:
        return {}
    return {
        each.get("Id", ""): (
            each.get("Type", "").rpartition("/")[2],
            normpath(join("/", folder, each.get("Target", ""))).lstrip("/"),
        )
        for each in parse_xml(package.read(name), name).iter("{*}Relationship")
    }


def _range(reference: str) -> CellRange | None:
    first, _, last = reference.partition(":")
    begin, end = _place(first), _place(last or first)
    return CellRange(*begin, *end) if begin and end else None


def _place(cell: str) -> tuple[int, int] | None:
    """Return a cell's column and row, which both begin with 1."""
    found = _CELL.match(cell)
    if found is None:
        return None
    column = 0
    for letter in found[1]:
        column = column * 26 + ord(letter) - ord("A") + 1
    return column, int(found[2])

"""Reads and writes .xlsx: cells that hold text. Formulas, numbers, dates and sheets' names stay.

So do the headers of tables: formulas name columns by them, and programs repair a workbook where
they differ from what its tables say.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.formats.office import OfficeDocument, Paragraph, open_package, parts_of
from serving.documents.parts.inline import Fragment, fragment_of
from serving.documents.parts.run_pieces import Grammar
from serving.documents.parts.runs import RunParagraph
from serving.documents.parts.xml import parse_xml, space_kept

MAIN_TYPE = "spreadsheetml.sheet"
_SHARED, _SHEETS = "spreadsheetml.sharedStrings+xml", "spreadsheetml.worksheet+xml"
_TABLES = "spreadsheetml.table+xml"
_PRONUNCIATION = frozenset({"rPh", "phoneticPr"})
_GRAMMAR = Grammar(leading=frozenset(), dropped=_PRONUNCIATION)


class PlainCell:
    """Holds a text of one look, which stands in no run."""

    def __init__(self, item: etree._Element, text: etree._Element) -> None:
        self._item, self._text = item, text
        self.fragment: Fragment = fragment_of([text.text or ""])

    def write(self, translation: str) -> None:
        items = self.fragment.restored(translation)
        space_kept(self._text, "".join(item for item in items if isinstance(item, str)))
        for child in [*self._item]:
            if etree.QName(child).localname in _PRONUNCIATION:
                self._item.remove(child)


def read(path: Path) -> Document:
    """Raises RequestError."""
    package, types = open_package(path, MAIN_TYPE)
    headers = {
        column.get("name", "")
        for name in parts_of(types, _TABLES)
        for column in parse_xml(package.read(name), name).iter("{*}tableColumn")
    }
    with_texts = [name for name in parts_of(types, _SHEETS) if b"inlineStr" in package.read(name)]
    parts = [*parts_of(types, _SHARED), *with_texts]
    return OfficeDocument(package, parts, _cells_beside(headers))


def _cells_beside(headers: set[str]) -> Callable[[etree._Element], Iterator[Paragraph]]:
    def cells(root: etree._Element) -> Iterator[Paragraph]:
        """Yield the shared texts, or those that stand in their cells."""
        for item in [*root.iter("{*}si", "{*}is")]:
            text = item.find("{*}t")
            if text is None:
                yield RunParagraph(item, _GRAMMAR)
            elif (text.text or "") not in headers:
                yield PlainCell(item, text)

    return cells

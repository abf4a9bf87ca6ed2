"""Reads and writes .docx: body, tables, headers, footers, notes and text boxes; fields stay."""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.formats.office import OfficeDocument, Paragraph, open_package, parts_of
from serving.documents.parts.runs import Grammar, RunParagraph, field_marks

MAIN_TYPE = "wordprocessingml.document"
_PARTS = tuple(
    f"wordprocessingml.{name}+xml"
    for name in ("document.main", "header", "footer", "footnotes", "endnotes")
)
_GRAMMAR = Grammar(
    leading=frozenset({"pPr"}),
    containers=frozenset({"hyperlink", "ins", "smartTag", "sdt"}),
    inner="sdtContent",
    breaks=frozenset({"br", "cr"}),
    dropped=frozenset({"proofErr", "lastRenderedPageBreak"}),
)


def read(path: Path) -> Document:
    """Raises RequestError."""
    package, types = open_package(path, MAIN_TYPE)
    return OfficeDocument(package, parts_of(types, *_PARTS), _paragraphs)


def _paragraphs(root: etree._Element) -> Iterator[Paragraph]:
    """Leave out paragraphs within a field, as those of a table of contents: programs make them."""
    depth = 0
    for element in [*root.iter("{*}p", "{*}fldChar")]:
        if element.tag.endswith("}fldChar"):
            [*marks] = field_marks(element)
            depth += marks.count("begin") - marks.count("end")
        elif depth <= 0 and etree.QName(element).namespace == etree.QName(root).namespace:
            yield RunParagraph(element, _GRAMMAR)

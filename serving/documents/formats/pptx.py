"""Reads and writes .pptx: slides with their tables, their notes, diagrams and charts' titles."""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.formats.office import OfficeDocument, Paragraph, open_package, parts_of
from serving.documents.parts.run_pieces import Grammar
from serving.documents.parts.runs import RunParagraph

MAIN_TYPE = "presentationml.presentation"
_PARTS = (
    "presentationml.slide+xml",
    "presentationml.notesSlide+xml",
    "drawingml.diagramData+xml",
    "ms-office.drawingml.diagramDrawing+xml",
    "drawingml.chart+xml",
)
_GRAMMAR = Grammar(
    leading=frozenset({"pPr"}),
    trailing=frozenset({"endParaRPr"}),
    fields=frozenset({"fld"}),
    marks_space=False,
)


def read(path: Path) -> Document:
    """Raises RequestError."""
    package, types = open_package(path, MAIN_TYPE)
    return OfficeDocument(package, parts_of(types, *_PARTS), _paragraphs)


def _paragraphs(root: etree._Element) -> Iterator[Paragraph]:
    for element in [*root.iter("{*}p")]:
        if etree.QName(element).namespace.endswith("/drawingml/2006/main") or etree.QName(
            element
        ).namespace.endswith("/drawingml/main"):
            yield RunParagraph(element, _GRAMMAR)

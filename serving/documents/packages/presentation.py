"""Read and write .pptx: slides, tables, notes, comments, charts, diagrams, descriptions of
pictures, and what layouts show on every slide.
"""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.packages.charts import read_charts
from serving.documents.packages.drawing import DRAWING_PARTS, drawing_paragraphs
from serving.documents.packages.office import (
    ElementText,
    OfficeDocument,
    Paragraph,
    open_package,
    parts_of_type,
    read_parts,
)

MAIN_TYPE = "presentationml.presentation"
_SLIDES = (
    "presentationml.slide+xml",
    "presentationml.notesSlide+xml",
    "ms-powerpoint.comments+xml",
)
_LAYOUTS = ("presentationml.slideLayout+xml", "presentationml.slideMaster+xml")
_COMMENTS = "presentationml.comments+xml"


def read_pptx(path: Path) -> Document:
    """Read a PowerPoint presentation. Raises RequestError."""
    package, types = open_package(path, MAIN_TYPE)
    drawings, linked_parts = read_charts(package, types, parts_of_type(types, *DRAWING_PARTS))
    parts = [
        *read_parts(package, parts_of_type(types, *_SLIDES), drawing_paragraphs),
        *read_parts(package, parts_of_type(types, *_LAYOUTS), _shown_by_layout),
        *read_parts(package, parts_of_type(types, _COMMENTS), _comments),
        *drawings,
    ]
    return OfficeDocument(package, parts, linked_parts)


def _shown_by_layout(root: etree._Element) -> Iterator[Paragraph]:
    """Yield the paragraphs of a layout's own shapes; the text of a placeholder is never shown."""
    for shape in root.iter("{*}sp"):
        if next(shape.iter("{*}ph"), None) is None:
            yield from drawing_paragraphs(shape)


def _comments(root: etree._Element) -> Iterator[Paragraph]:
    return map(ElementText, root.iter("{*}text"))

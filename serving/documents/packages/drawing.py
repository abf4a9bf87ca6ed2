"""Text of DrawingML, which documents of all kinds have, and texts in attributes.

Shapes, WordArt, diagrams and the titles of charts have paragraphs of one schema (ECMA-376, part 1,
21.1.2). Descriptions of pictures, and WordArt of old versions, are attributes.
"""

import re
from collections.abc import Iterator

from lxml import etree

from serving.documents.packages.office import AttributeText, Paragraph
from serving.documents.packages.ranges import local_name
from serving.documents.packages.run_pieces import ParagraphSchema
from serving.documents.packages.runs import RunParagraph

Element = etree._Element
# Parts of DrawingML in documents of any kind.
DRAWING_PARTS = (
    "drawingml.diagramData+xml",
    "ms-office.drawingml.diagramDrawing+xml",
    "drawingml.chart+xml",
    "ms-office.chartex+xml",
    "drawingml.chartshapes+xml",
)
_SCHEMA = ParagraphSchema(
    leading=frozenset({"pPr"}),
    trailing=frozenset({"endParaRPr"}),
    fields=frozenset({"fld"}),
    marks_space=False,
)
_NAMESPACES = ("/drawingml/2006/main", "/drawingml/main")
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
# Attributes with text, by the names of elements.
_ATTRIBUTES = {
    "docPr": ("descr", "title"),
    "cNvPr": ("descr", "title"),
    "textpath": ("string",),
    "shape": ("alt",),
    "listItem": (f"{_WORD}displayText",),
    "tblCaption": (f"{_WORD}val",),
    "tblDescription": (f"{_WORD}val",),
}
# Programs describe a picture by the name of its file.
_FILE_NAME = re.compile(r"\S*\.\w{2,5}|[^/]*\.(?:png|jpe?g|gif|bmp|tiff?|emf|wmf|svg|webp)", re.I)


def drawing_paragraphs(root: Element) -> Iterator[Paragraph]:
    """Yield the texts in attributes, and the paragraphs of DrawingML.

    They come before other paragraphs, which copy elements when they are written.
    """
    for element in root.iter(*(f"{{*}}{name}" for name in _ATTRIBUTES)):
        for name in _ATTRIBUTES[local_name(element)]:
            text = element.get(name, "")
            if text and not _FILE_NAME.fullmatch(text.strip()):
                yield AttributeText(element, name)
    for element in [*root.iter("{*}p")]:
        if (etree.QName(element).namespace or "").endswith(_NAMESPACES):
            yield RunParagraph(element, _SCHEMA)

"""Read and write .docx: body, tables, headers, footers, notes, comments, text boxes, charts,
diagrams and descriptions of pictures.

Of fields only the text of links and tables of contents is translated, which people write. ECMA-376,
part 1, 17.3 lists what may stand in a paragraph.
"""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.packages.charts import read_charts
from serving.documents.packages.content_controls import BoundControls
from serving.documents.packages.drawing import DRAWING_PARTS, drawing_paragraphs
from serving.documents.packages.office import (
    OfficeDocument,
    PackagePart,
    Paragraph,
    keep_with_words,
    open_package,
    parts_of_type,
)
from serving.documents.packages.ranges import find_fields
from serving.documents.packages.run_pieces import WORD_CHARACTERS, ParagraphSchema
from serving.documents.packages.runs import RunParagraph
from serving.documents.xml_trees import parse_xml

MAIN_TYPE = "wordprocessingml.document"
_PARTS = tuple(
    f"wordprocessingml.{name}+xml"
    for name in ("document.main", "header", "footer", "footnotes", "endnotes", "comments")
)
_SCHEMA = ParagraphSchema(
    leading=frozenset({"pPr", "customXmlPr", "smartTagPr", "fldData"}),
    containers=frozenset(
        {"hyperlink", "ins", "moveTo", "smartTag", "customXml", "sdt", "dir", "bdo", "ruby"}
    ),
    inner={"sdt": "sdtContent", "ruby": "rubyBase"},
    fields=frozenset({"fldSimple"}),
    field_marks=frozenset({"fldChar", "instrText"}),
    line_breaks=frozenset({"br", "cr"}),
    breaks=frozenset({"tab", "ptab"}),
    dropped=frozenset({"proofErr", "lastRenderedPageBreak"}),
    characters=WORD_CHARACTERS,
)


def read_docx(path: Path) -> Document:
    """Read a Word document. Raises RequestError."""
    package, types = open_package(path, MAIN_TYPE)
    controls = BoundControls(package, types)
    parts = []
    for name in parts_of_type(types, *_PARTS):
        tree = parse_xml(package.read(name), name)
        is_bound = controls.bind(tree.getroot())
        parts.append(
            PackagePart(
                name, tree, keep_with_words(_paragraphs(tree.getroot(), controls)), is_bound
            )
        )
    drawings, linked_parts = read_charts(package, types, parts_of_type(types, *DRAWING_PARTS))
    return OfficeDocument(package, [*controls.parts(), *parts, *drawings], linked_parts)


def _paragraphs(root: etree._Element, controls: BoundControls) -> Iterator[Paragraph]:
    yield from drawing_paragraphs(root)
    fields = find_fields(root).with_generated(controls.elements)
    for element in [*root.iter("{*}p")]:
        is_text = etree.QName(element).namespace == etree.QName(root).namespace
        if is_text and not controls.contain(element):
            yield RunParagraph(element, _SCHEMA, fields)

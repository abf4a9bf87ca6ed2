"""Reads and writes .docx: body, tables, headers, footers, notes, comments and text boxes.

Of fields the shown text of links and tables of contents are translated; what else programs make
stays. What may stand in a
paragraph is listed in ECMA-376, part 1, 17.3.
"""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.formats.office import OfficeDocument, Paragraph, open_package, parts_of
from serving.documents.parts.fields import fields_of
from serving.documents.parts.run_pieces import WORD_CHARACTERS, Grammar
from serving.documents.parts.runs import RunParagraph

MAIN_TYPE = "wordprocessingml.document"
_PARTS = tuple(
    f"wordprocessingml.{name}+xml"
    for name in ("document.main", "header", "footer", "footnotes", "endnotes", "comments")
)
_GRAMMAR = Grammar(
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


def read(path: Path) -> Document:
    """Raises RequestError."""
    package, types = open_package(path, MAIN_TYPE)
    return OfficeDocument(package, parts_of(types, *_PARTS), _paragraphs)


def _paragraphs(root: etree._Element) -> Iterator[Paragraph]:
    fields = fields_of(root)
    for element in [*root.iter("{*}p")]:
        if etree.QName(element).namespace == etree.QName(root).namespace:
            yield RunParagraph(element, _GRAMMAR, fields)

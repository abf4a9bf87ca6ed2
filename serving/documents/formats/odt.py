"""Reads and writes .odt: body, tables, notes, frames, headers and footers; fields stay."""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.formats.office import OfficeDocument, Paragraph, is_remote
from serving.documents.parts.odt_paragraphs import OdtGrammar, OdtParagraph
from serving.documents.parts.package import Package
from serving.documents.parts.xml import parse_xml
from serving.errors import RequestError

_MEDIA_TYPE = b"application/vnd.oasis.opendocument.text"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_PARTS = ("content.xml", "styles.xml")


def _names(words: str) -> frozenset[str]:
    return frozenset(f"{_TEXT}{word}" for word in words.split())


# OpenDocument 1.3, part 3, 6.1 and 7.
_GRAMMAR = OdtGrammar(
    pairs=_names("span a meta ruby"),
    inner={f"{_TEXT}ruby": f"{_TEXT}ruby-base"},
    line_breaks=_names("line-break"),
    breaks=_names("tab"),
    shown=_names(
        "author-initials author-name bookmark-ref chapter conditional-text creation-date"
        " creation-time creator database-display date description expression file-name"
        " initial-creator note-ref page-count page-number print-date reference-ref sequence"
        " sequence-ref sheet-name subject template-name text-input time title user-defined"
        " user-field-get variable-get variable-set"
    ),
)
_DELETED = f"{_TEXT}tracked-changes"
_LOADED = (f"{_DRAW}image", f"{_DRAW}object", f"{_DRAW}object-ole", f"{_DRAW}plugin")


def read(path: Path) -> Document:
    """Raises RequestError."""
    package = Package(path)
    if "mimetype" not in package.names or package.read("mimetype").strip() != _MEDIA_TYPE:
        raise RequestError("file", path.name, "is not what its name says: no OpenDocument text")
    parts = [name for name in _PARTS if name in package.names]
    for name in parts:
        _check_links(parse_xml(package.read(name), name).getroot(), name)
    return OfficeDocument(package, parts, _paragraphs)


def _paragraphs(root: etree._Element) -> Iterator[Paragraph]:
    for element in [*root.iter(f"{_TEXT}p", f"{_TEXT}h")]:
        if next(element.iterancestors(_DELETED), None) is None:
            yield OdtParagraph(element, _GRAMMAR)


def _check_links(root: etree._Element, name: str) -> None:
    for element in root.iter(*_LOADED):
        if is_remote(target := element.get(_HREF, "")):
            message = f"in {name} would be loaded from outside: that is refused"
            raise RequestError("file", target, message)

"""Parse XML of unknown origin safely into trees, for packages whose parts are changed as trees."""

from typing import Any

from lxml import etree

from serving.errors import RequestError

SPACE = "{http://www.w3.org/XML/1998/namespace}space"


def parse_xml(data: bytes, name: str) -> etree._ElementTree:
    """Parse a document. Raises RequestError with the name of the part; entities and document types
    are refused.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, strip_cdata=False)
    try:
        tree = etree.ElementTree(etree.fromstring(data, parser))
    except (etree.XMLSyntaxError, ValueError) as error:
        raise RequestError("file", name, f"is not well-formed XML: {error}") from None
    document: Any = tree.docinfo
    if document.doctype or document.internalDTD is not None:
        message = "must not have a document type: entities and external references are refused"
        raise RequestError("file", name, message)
    return tree


def xml_bytes(tree: etree._ElementTree) -> bytes:
    """Return the document with its original declaration."""
    document: Any = tree.docinfo
    write: Any = etree.tostring
    encoding, standalone = document.encoding or "UTF-8", document.standalone or None
    written: bytes = write(tree, encoding=encoding, xml_declaration=True, standalone=standalone)
    return written


def set_text(element: etree._Element, text: str, marks_space: bool = True) -> None:
    """Set the text of an element. marks_space: spaces at its ends need `xml:space`."""
    element.text = text
    if marks_space and text != text.strip():
        element.set(SPACE, "preserve")

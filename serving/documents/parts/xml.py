"""Reads and writes XML that strangers made: no entities, no document types, nothing else."""

from typing import Any

from lxml import etree

from serving.errors import RequestError

SPACE = "{http://www.w3.org/XML/1998/namespace}space"


def parse_xml(data: bytes, name: str) -> etree._ElementTree:
    """Parse a whole document. Raises RequestError naming the part that cannot be taken."""
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


def written_xml(tree: etree._ElementTree) -> bytes:
    """Write a document with the declaration that it had."""
    document: Any = tree.docinfo
    write: Any = etree.tostring
    encoding, standalone = document.encoding or "UTF-8", document.standalone or None
    written: bytes = write(tree, encoding=encoding, xml_declaration=True, standalone=standalone)
    return written


def space_kept(element: etree._Element, text: str, marks_space: bool = True) -> None:
    """Give an element a text whose spaces count also at its ends. marks_space: it has to say so."""
    element.text = text
    if marks_space and text != text.strip():
        element.set(SPACE, "preserve")

"""Reads and writes XML that strangers made: no entities, no document types, nothing else."""

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
    if tree.docinfo.doctype or tree.docinfo.internalDTD is not None:
        message = "must not have a document type: entities and external references are refused"
        raise RequestError("file", name, message)
    return tree


def written_xml(tree: etree._ElementTree) -> bytes:
    """Write a document with the declaration that it had."""
    return etree.tostring(
        tree,
        encoding=tree.docinfo.encoding or "UTF-8",
        xml_declaration=True,
        standalone=tree.docinfo.standalone or None,
    )


def space_kept(element: etree._Element, text: str) -> None:
    """Give an element a text whose spaces count also at its ends."""
    element.text = text
    if text != text.strip():
        element.set(SPACE, "preserve")

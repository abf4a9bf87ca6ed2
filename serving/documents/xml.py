"""Parse XML of unknown origin safely, and find the elements in its text, so that all else stays as
it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from xml.sax.saxutils import escape, quoteattr, unescape

from lxml import etree

from serving.documents.encoding import XML_DECLARATION, TextFile, decoded
from serving.errors import RequestError

_TOKEN = re.compile(
    r"(?P<other><!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>)"
    r"|<(?P<ends>/?)(?P<name>[^\s/>]+)(?:[^>\"']*(?:\"[^\"]*\"|'[^']*'))*[^>\"']*>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"([^\s=/<>\"']+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_MARKUP = re.compile(r"<!--.*?-->|<\?.*?\?>", re.DOTALL)
_DECLARATION = re.compile(r"\A\s*<\?xml\s.*?\?>", re.DOTALL)
# It has no entities. What stands before it, such as comments, is no part of it.
_DOCTYPE = re.compile(
    r"\A(?P<before>(?:[^<]|<!--.*?-->|<\?.*?\?>)*+)"
    r"<!DOCTYPE\s(?:[^<>\[\]\"']|\"[^\"]*\"|'[^']*')*+>",
    re.DOTALL,
)
_CHARACTER = re.compile(r"&#(?:x([\da-fA-F]+)|(\d+));")


@dataclass(eq=False)
class XmlElement:
    """An element and the places of its tags in the text. name: without its prefix."""

    prefix: str
    name: str
    tag: str
    start: int
    inner_start: int
    parent: "XmlElement | None" = None
    inner_end: int = 0
    end: int = 0
    children: list["XmlElement"] = field(default_factory=list)

    @cached_property
    def attributes(self) -> dict[str, str]:
        own = self.tag[len(self.prefix) + len(self.name) + 1 :]
        return {name: unescape_text(one or other) for name, one, other in _ATTRIBUTE.findall(own)}

    @property
    def is_empty(self) -> bool:
        return self.tag.endswith("/>")

    @property
    def end_tag(self) -> str:
        return f"</{self.prefix}{self.name}>"

    def child(self, name: str) -> "XmlElement | None":
        """Return the first child of a name with the same namespace prefix."""
        own = (each for each in self.children if each.prefix == self.prefix)
        return next((each for each in own if each.name == name), None)

    def walk(self) -> Iterator["XmlElement"]:
        """Yield the element and all its descendants in document order."""
        waiting = [self]
        while waiting:
            yield (element := waiting.pop())
            waiting += reversed(element.children)

    def inherited(self, attribute: str) -> str | None:
        """Return an attribute of the element or of its nearest ancestor that has it."""
        element: XmlElement | None = self
        while element is not None:
            if (value := element.attributes.get(attribute)) is not None:
                return value
            element = element.parent
        return None

    def with_attributes(self, changes: dict[str, str | None]) -> str:
        """Return the start tag with changed or added attributes; None removes one."""
        tag = self.tag
        for name, value in changes.items():
            written = "" if value is None else f" {name}={quoteattr(value)}"
            old = re.search(rf"\s+{re.escape(name)}\s*=\s*(?:\"[^\"]*\"|'[^']*')", tag)
            start, end = old.span() if old else (len(tag.rstrip("/>").rstrip()),) * 2
            tag = tag[:start] + written + tag[end:]
        return tag


def root_of(text: str) -> XmlElement:
    """Return the root element of a well-formed document, which may only name its type."""
    document = XmlElement("", "", "", 0, 0, None)
    current = document
    for token in _TOKEN.finditer(_without_doctype(text)):
        if token["other"]:
            continue
        if token["ends"]:
            current.inner_end, current.end = token.start(), token.end()
            current = current.parent or document
            continue
        prefix, colon, name = token["name"].rpartition(":")
        element = XmlElement(
            prefix + colon, name, token.group(), token.start(), token.end(), current
        )
        current.children.append(element)
        if element.is_empty:
            element.inner_end = element.end = element.inner_start
        else:
            current = element
    [root] = document.children
    root.parent = None
    return root


def blank_before(element: XmlElement, document: str) -> str:
    """Return the white space before an element that begins a line."""
    start = element.parent.inner_start if element.parent else 0
    before = document[start : element.start]
    blank = before[len(before.rstrip()) :]
    return blank if "\n" in blank else ""


def unescape_text(written: str) -> str:
    """Return the unescaped text of content without elements, or of an attribute."""
    if "<" not in written:
        return _unescaped(written)
    parts = enumerate(_CDATA.split(written))
    return "".join(part if n % 2 else _unescaped(_MARKUP.sub("", part)) for n, part in parts)


def text_within(written: str) -> str:
    """Return the text of content with elements."""
    return unescape_text(_TOKEN.sub(lambda token: token["other"] or "", written))


def _unescaped(text: str) -> str:
    if "&" not in text:
        return text
    text = _CHARACTER.sub(
        lambda found: chr(int(found[1] or found[2], 16 if found[1] else 10)), text
    )
    return unescape(text, {"&quot;": '"', "&apos;": "'"})


def is_cdata(written: str) -> bool:
    """Return whether all text is in CDATA sections."""
    return "<![CDATA[" in written and not _CDATA.sub("", written).strip()


def cdata_of(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def escape_text(text: str) -> str:
    return escape(text).replace("\r", "&#13;")


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


def read_xml(data: bytes, name: str) -> tuple[TextFile, XmlElement]:
    """Return the text of an XML file, and its root element. Raises RequestError with its name.

    The file may name its document type, which is not loaded.
    """
    file = decoded(data, name, declaration=XML_DECLARATION).with_line_feeds()
    text = _without_doctype(file.text)
    if text == file.text:
        parse_xml(data, name)  # checks its encoding, too
    parse_xml(_DECLARATION.sub("", text).encode(), name)
    return file, root_of(file.text)


def _without_doctype(text: str) -> str:
    """Return XML with spaces in place of the name of its document type."""
    doctype = _DOCTYPE.match(text)
    if doctype is None:
        return text
    before = doctype["before"]
    return before + " " * (doctype.end() - len(before)) + text[doctype.end() :]


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

"""Find the elements in the text of an XML file, so that all else stays as it is."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from serving.documents.encoding import XML_DECLARATION, TextFile, decode_text
from serving.documents.xml_trees import parse_xml
from serving.errors import RequestError
from serving.text.markup.xml_tokens import (
    XmlSyntaxError,
    XmlToken,
    XmlTokenKind,
    tokenize_xml,
    unescape_references,
)

_DECLARATION = re.compile(r"\A\s*<\?xml\s.*?\?>", re.DOTALL)
# It has no entities. What stands before it, such as comments, is no part of it.
_DOCTYPE = re.compile(
    r"\A(?P<before>(?:[^<]|<!--.*?-->|<\?.*?\?>)*+)"
    r"<!DOCTYPE\s(?:[^<>\[\]\"']|\"[^\"]*\"|'[^']*')*+>",
    re.DOTALL,
)


@dataclass(eq=False)
class XmlElement:
    """An element and the places of its tags in the text. name: without its prefix."""

    prefix: str
    name: str
    tag: str
    start: int
    inner_start: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    parent: "XmlElement | None" = None
    inner_end: int = 0
    end: int = 0
    children: list["XmlElement"] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return self.tag.endswith("/>")

    @property
    def end_tag(self) -> str:
        return f"</{self.prefix}{self.name}>"

    def child(self, name: str) -> "XmlElement | None":
        """Return the first child of a name with the same namespace prefix."""
        children = (child for child in self.children if child.prefix == self.prefix)
        return next((child for child in children if child.name == name), None)

    def walk(self) -> Iterator["XmlElement"]:
        """Yield the element and all its descendants in document order."""
        waiting = [self]
        while waiting:
            yield (element := waiting.pop())
            waiting += reversed(element.children)

    def inherited_attribute(self, attribute: str) -> str | None:
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
            new = "" if value is None else f" {name}={quoteattr(value)}"
            old = re.search(rf"\s+{re.escape(name)}\s*=\s*(?:\"[^\"]*\"|'[^']*')", tag)
            start, end = old.span() if old else (len(tag.rstrip("/>").rstrip()),) * 2
            tag = tag[:start] + new + tag[end:]
        return tag


def root_element(text: str) -> XmlElement:
    """Return the root element of a well-formed document, which may only name its type.

    Raises XmlSyntaxError.
    """
    text = _without_doctype(text)
    document = current = XmlElement("", "", "", 0, 0)
    for token in tokenize_xml(text):
        if token.kind is XmlTokenKind.END_TAG:
            current.inner_end, current.end = token.start, token.end
            current = current.parent or document
        elif token.kind in (XmlTokenKind.START_TAG, XmlTokenKind.EMPTY_TAG):
            element = _element(token, text, current)
            current.children.append(element)
            if token.kind is XmlTokenKind.START_TAG:
                current = element
    [root] = document.children
    root.parent = None
    return root


def _element(token: XmlToken, text: str, parent: XmlElement) -> XmlElement:
    """Return the element that a tag begins, as if it were empty."""
    prefix, colon, name = token.name.rpartition(":")
    return XmlElement(
        prefix + colon,
        name,
        token.raw(text),
        token.start,
        token.end,
        token.attributes,
        parent,
        token.end,
        token.end,
    )


def blank_before(element: XmlElement, document: str) -> str:
    """Return the white space before an element that begins a line."""
    start = element.parent.inner_start if element.parent else 0
    before = document[start : element.start]
    blank = before[len(before.rstrip()) :]
    return blank if "\n" in blank else ""


def unescape_text(content: str) -> str:
    """Return the text of the content of an element, or of an attribute; tags and comments are left
    out.
    """
    if "<" not in content:
        return unescape_references(content)
    document = f"<x>{content}</x>"
    parts = []
    for token in tokenize_xml(document):
        if token.kind is XmlTokenKind.TEXT:
            parts.append(unescape_references(token.raw(document)))
        elif token.kind is XmlTokenKind.CDATA:
            parts.append(token.cdata(document))
    return "".join(parts)


def is_cdata(content: str) -> bool:
    """Return whether all text is in CDATA sections."""
    if "<![CDATA[" not in content:
        return False
    document = f"<x>{content}</x>"
    return all(
        token.kind is XmlTokenKind.CDATA or token.raw(document).isspace()
        for token in tokenize_xml(document)[1:-1]
    )


def cdata_section(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def escape_text(text: str) -> str:
    return escape(text).replace("\r", "&#13;")


def read_xml(data: bytes, name: str) -> tuple[TextFile, XmlElement]:
    """Return the text of an XML file, and its root element. Raises RequestError with its name.

    The file may name its document type, which is not loaded.
    """
    file = decode_text(data, name, declaration=XML_DECLARATION).with_line_feeds()
    text = _without_doctype(file.text)
    if text == file.text:
        parse_xml(data, name)  # checks its encoding, too
    parse_xml(_DECLARATION.sub("", text).encode(), name)
    try:
        return file, root_element(file.text)
    except XmlSyntaxError as error:  # names of elements that only lxml allows
        raise RequestError("file", name, f"is not well-formed XML: {error}") from None


def _without_doctype(text: str) -> str:
    """Return XML with spaces in place of the name of its document type."""
    doctype = _DOCTYPE.match(text)
    if doctype is None:
        return text
    before = doctype["before"]
    return before + " " * (doctype.end() - len(before)) + text[doctype.end() :]

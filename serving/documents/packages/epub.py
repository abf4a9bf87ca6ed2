"""Read and write .epub: the pages of a book, its tables of contents and its title (EPUB 2 and 3).

Pages are XHTML, which is read as HTML. Other labels are the texts of elements in XML.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from serving.documents.document import Document
from serving.documents.encoding import HTML_DECLARATION, decode_text
from serving.documents.formats.html import html_document
from serving.documents.packages.office import ZipPackage
from serving.documents.spans import LayeredDocument, TextSpan, apply_edits
from serving.documents.xml_elements import (
    XmlElement,
    escape_text,
    read_xml,
    root_element,
    unescape_text,
)
from serving.errors import RequestError
from serving.text.markup.html_elements import ESCAPABLE_RAW_TEXT, RAW_TEXT

MEDIA_TYPE = "application/epub+zip"
_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGE, _NCX = "application/xhtml+xml", "application/x-dtbncx+xml"
# Only the beginnings of fonts are garbled, with the book's identifier: no protection of its text.
_OF_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_LABELS = frozenset({"docTitle", "navLabel"})  # of a table of contents in EPUB 2
# Elements without content in XHTML; in HTML their tags would begin a text without tags.
_EMPTY = re.compile(rf"<({'|'.join(sorted(RAW_TEXT | ESCAPABLE_RAW_TEXT))})\b([^<>]*)/>")


class EpubDocument:
    def __init__(self, package: ZipPackage, parts: Iterable[tuple[str, LayeredDocument]]) -> None:
        self._package, self._parts = package, dict(parts)

    @property
    def fragments(self) -> Sequence[str]:
        return [text for part in self._parts.values() for text in part.fragments]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        waiting = iter(translations)
        changed = {
            name: part.encode_translation([*islice(waiting, len(part.fragments))], language)
            for name, part in self._parts.items()
        }
        self._package.write(target, changed)


def read_epub(path: Path) -> Document:
    """Read a book. Raises RequestError, also for one that is protected against copying."""
    package = ZipPackage(path)
    package.check_mimetype(MEDIA_TYPE, "EPUB")
    _refuse_encrypted(package, path.name)
    _, container = read_xml(package.read(_CONTAINER), _CONTAINER)
    names = [
        element.attributes.get("full-path", "")
        for element in _elements_named(container, "rootfile")
    ]
    if not names:
        raise RequestError("file", path.name, "is damaged: its container names no book")
    return EpubDocument(package, [part for name in names for part in _parts(package, name)])


def _refuse_encrypted(package: ZipPackage, file_name: str) -> None:
    if _ENCRYPTION not in package.names:
        return
    _, root = read_xml(package.read(_ENCRYPTION), _ENCRYPTION)
    for method in _elements_named(root, "EncryptionMethod"):
        if method.attributes.get("Algorithm") not in _OF_FONTS:
            raise RequestError("file", file_name, "is encrypted: its copies are protected (DRM)")


def _parts(package: ZipPackage, name: str) -> Iterator[tuple[str, LayeredDocument]]:
    """Yield the parts of a book with text, in the order of reading. name: of its package file."""
    file, root = read_xml(package.read(name), name)
    yield name, LayeredDocument(file, [_titles], _declare_language)
    order = [element.attributes.get("idref") for element in _elements_named(root, "itemref")]
    places = {identity: place for place, identity in enumerate(order)}
    items = [element.attributes for element in _elements_named(root, "item")]
    for item in sorted(items, key=lambda item: places.get(item.get("id"), len(order))):
        part = normpath(join(dirname(name), unquote(item.get("href", ""))))
        kind = item.get("media-type")
        if kind == _PAGE and part in package.names:
            page = decode_text(package.read(part), part, declaration=HTML_DECLARATION)
            yield part, html_document(replace(page, text=_EMPTY.sub(r"<\1\2></\1>", page.text)))
        elif kind == _NCX and part in package.names:
            file, _ = read_xml(package.read(part), part)
            yield part, LayeredDocument(file, [_labels], _declare_language)


def _titles(text: str) -> Iterator[TextSpan]:
    return (_span(element, text) for element in _elements_named(root_element(text), "title"))


def _labels(text: str) -> Iterator[TextSpan]:
    holders = (element for element in root_element(text).walk() if element.name in _LABELS)
    return (
        _span(element, text) for holder in holders for element in _elements_named(holder, "text")
    )


def _span(element: XmlElement, document: str) -> TextSpan:
    start, end = element.inner_start, element.inner_end
    return TextSpan(start, end, [unescape_text(document[start:end])], escape_text)


def _declare_language(text: str, language: str) -> str:
    """Declare the language of an XML file where it declares one."""
    root = root_element(text)
    languages = [element for element in _elements_named(root, "language") if not element.is_empty]
    edits = [(element.inner_start, element.inner_end, language) for element in languages[:1]]
    if "xml:lang" in root.attributes:
        edits.append((root.start, root.inner_start, root.with_attributes({"xml:lang": language})))
    return apply_edits(text, edits)


def _elements_named(root: XmlElement, name: str) -> Iterator[XmlElement]:
    return (element for element in root.walk() if element.name == name)

"""Read and write .epub: the pages of a book, its tables of contents and its title (EPUB 2 and 3).

Pages are XHTML, which is read as HTML. Other labels are the texts of elements in XML.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Protocol
from urllib.parse import unquote

from serving.documents.encoding import HTML_DECLARATION, TextFile, decoded
from serving.documents.formats.html import page_of
from serving.documents.fragment import Document
from serving.documents.packages.office import Package
from serving.documents.spans import Edit, Span, edited
from serving.documents.xml import XmlElement, escape_text, read_xml, unescape_text
from serving.errors import RequestError

MEDIA_TYPE = "application/epub+zip"
_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGE, _NCX = "application/xhtml+xml", "application/x-dtbncx+xml"
# Only the beginnings of fonts are garbled, with the book's identifier: no protection of its text.
_OF_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_LABELS = frozenset({"docTitle", "navLabel"})  # of a table of contents in EPUB 2
# Elements without content in XHTML; in HTML their tags would begin a text without tags.
_EMPTY = re.compile(r"<(iframe|script|style|textarea|title)\b([^<>]*)/>")


class BookPart(Protocol):
    @property
    def fragments(self) -> Sequence[str]: ...

    def written(self, translations: Sequence[str], language: str) -> bytes: ...


class EpubDocument:
    def __init__(self, package: Package, parts: Iterable[tuple[str, BookPart]]) -> None:
        self._package, self._parts = package, dict(parts)

    @property
    def fragments(self) -> Sequence[str]:
        return [text for part in self._parts.values() for text in part.fragments]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        waiting = iter(translations)
        changed = {
            name: part.written([*islice(waiting, len(part.fragments))], language)
            for name, part in self._parts.items()
        }
        self._package.write(target, changed)


class _Labels:
    """Elements of an XML file with texts, and the first that names the language."""

    def __init__(self, file: TextFile, root: XmlElement, elements: Iterable[XmlElement]) -> None:
        self._file, self._root = file, root
        spans = (_span(each, file.text) for each in elements)
        self._spans = [span for span in spans if span.fragment.has_words]

    @property
    def fragments(self) -> Sequence[str]:
        return [span.fragment.xml for span in self._spans]

    def written(self, translations: Sequence[str], language: str) -> bytes:
        edits: list[Edit] = [
            (span.start, span.end, span.translated(translation))
            for span, translation in zip(self._spans, translations, strict=True)
        ]
        if "xml:lang" in self._root.attributes:
            tag = self._root.with_attributes({"xml:lang": language})
            edits.append((self._root.start, self._root.inner_start, tag))
        named = next(_named(self._root, "language"), None)
        if named and not named.is_empty:
            edits.append((named.inner_start, named.inner_end, language))
        return self._file.encoded(edited(self._file.text, edits))


@dataclass(frozen=True)
class _Item:
    """A file of a book. properties: `nav` is of a table of contents."""

    name: str
    media_type: str
    place: int  # in the order of reading


def read(path: Path) -> Document:
    """Read a book. Raises RequestError, also for one that is protected against copying."""
    package = Package(path)
    package.check_mimetype(MEDIA_TYPE, "EPUB")
    _refuse_encrypted(package, path.name)
    _, container = read_xml(package.read(_CONTAINER), _CONTAINER)
    names = [each.attributes.get("full-path", "") for each in _named(container, "rootfile")]
    if not names:
        raise RequestError("file", path.name, "is damaged: its container names no book")
    return EpubDocument(package, [each for name in names for each in _parts(package, name)])


def _refuse_encrypted(package: Package, file_name: str) -> None:
    if _ENCRYPTION not in package.names:
        return
    _, root = read_xml(package.read(_ENCRYPTION), _ENCRYPTION)
    for method in _named(root, "EncryptionMethod"):
        if method.attributes.get("Algorithm") not in _OF_FONTS:
            raise RequestError("file", file_name, "is encrypted: its copies are protected (DRM)")


def _parts(package: Package, name: str) -> Iterator[tuple[str, BookPart]]:
    """Yield the parts of a book with text, in the order of reading. name: of its package file."""
    file, root = read_xml(package.read(name), name)
    yield name, _Labels(file, root, _named(root, "title"))
    for item in sorted(_items(root, dirname(name)), key=lambda item: item.place):
        if item.name not in package.names:
            continue
        data = package.read(item.name)
        if item.media_type == _PAGE:
            page = decoded(data, item.name, declaration=HTML_DECLARATION)
            yield item.name, page_of(replace(page, text=_EMPTY.sub(r"<\1\2></\1>", page.text)))
        elif item.media_type == _NCX:
            file, ncx = read_xml(data, item.name)
            yield item.name, _Labels(file, ncx, _labels(ncx))


def _items(root: XmlElement, folder: str) -> Iterator[_Item]:
    order = [each.attributes.get("idref") for each in _named(root, "itemref")]
    places = {identity: place for place, identity in enumerate(order)}
    for each in _named(root, "item"):
        said = each.attributes
        name = normpath(join(folder, unquote(said.get("href", ""))))
        place = places.get(said.get("id"), len(order))
        yield _Item(name, said.get("media-type", ""), place)


def _labels(root: XmlElement) -> Iterator[XmlElement]:
    return (each for each in _named(root, "text") if each.parent and each.parent.name in _LABELS)


def _named(root: XmlElement, name: str) -> Iterator[XmlElement]:
    return (each for each in root.walk() if each.name == name)


def _span(element: XmlElement, document: str) -> Span:
    start, end = element.inner_start, element.inner_end
    return Span(start, end, [unescape_text(document[start:end])], escape_text)

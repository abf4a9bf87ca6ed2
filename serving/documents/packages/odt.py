"""Read and write .odt: body, tables, notes, frames, charts, descriptions of pictures, headers and
footers; fields stay.

Paragraphs have text between elements, as in HTML. Some elements enclose words, and so are
two that mark the ends of a range; all others are single codes.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

from serving.documents.codes import Close, Item, Open, Protected, Single
from serving.documents.document import Document
from serving.documents.fragment import Fragment, make_fragment
from serving.documents.packages.office import (
    ElementText,
    OfficeDocument,
    Paragraph,
    ZipPackage,
    is_remote,
    read_parts,
    refuse_macros,
)
from serving.documents.packages.ranges import find_ranges
from serving.documents.xml_trees import parse_xml
from serving.errors import RequestError

MEDIA_TYPE = "application/vnd.oasis.opendocument.text"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_SVG = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_CHART = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}chart"
_PARTS = ("content.xml", "styles.xml")
Element = etree._Element
_DELETED = f"{_TEXT}tracked-changes"
_LOADED = (f"{_DRAW}image", f"{_DRAW}object", f"{_DRAW}object-ole", f"{_DRAW}plugin")
_DEEPEST_RANGE = 20  # below it marks are single; each level is one of the stack, too


def _names(words: str) -> frozenset[str]:
    return frozenset(f"{_TEXT}{word}" for word in words.split())


@dataclass(frozen=True)
class OdtSchema:
    """The element names of paragraphs.

    pairs: elements that enclose words. inner: the child of a pair that has the words.
    line_breaks: end lines. breaks: always end sentences.
    generated: have text that programs generate, which is a word of the sentence.
    """

    pairs: frozenset[str]
    inner: Mapping[str, str] = field(default_factory=dict)
    line_breaks: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()
    generated: frozenset[str] = frozenset()

    def inner_element(self, pair: Element) -> Element | None:
        name = self.inner.get(pair.tag)
        return pair if name is None else pair.find(name)


# OpenDocument 1.3, part 3, 6.1 and 7.
_SCHEMA = OdtSchema(
    pairs=_names("span a meta ruby"),
    inner={f"{_TEXT}ruby": f"{_TEXT}ruby-base"},
    line_breaks=_names("line-break"),
    breaks=_names("tab"),
    generated=_names(
        "author-initials author-name bookmark-ref chapter conditional-text creation-date"
        " creation-time creator database-display date description expression file-name"
        " initial-creator note-ref page-count page-number print-date reference-ref sequence"
        " sequence-ref sheet-name subject template-name text-input time title user-defined"
        " user-field-get variable-get variable-set"
    ),
)


def read_odt(path: Path) -> Document:
    """Read a text document. Raises RequestError."""
    package = ZipPackage(path)
    refuse_macros(package)
    package.check_mimetype(MEDIA_TYPE, "OpenDocument text")
    parts = [name for name in _PARTS if name in package.names]
    parts += [name for name in package.names if _is_chart(package, name)]
    for name in parts:
        _check_links(parse_xml(package.read(name), name).getroot(), name)
    return OfficeDocument(package, read_parts(package, parts, _paragraphs))


def _is_chart(package: ZipPackage, name: str) -> bool:
    """Return whether a part is the content of a chart, whose names and categories are the cells of
    a table in it.
    """
    if not name.endswith("/content.xml"):
        return False
    root = parse_xml(package.read(name), name).getroot()
    return next(root.iter(_CHART), None) is not None


def _paragraphs(root: etree._Element) -> Iterator[Paragraph]:
    for element in root.iter(f"{_SVG}title", f"{_SVG}desc"):
        yield ElementText(element)
    for element in [*root.iter(f"{_TEXT}p", f"{_TEXT}h")]:
        if next(element.iterancestors(_DELETED), None) is None:
            yield OdtParagraph(element, _SCHEMA)


def _check_links(root: etree._Element, name: str) -> None:
    for element in root.iter(*_LOADED):
        if is_remote(target := element.get(_HREF, "")):
            message = f"in {name} would be loaded from outside: that is refused"
            raise RequestError("file", target, message)


@dataclass(frozen=True)
class _Range:
    begin: Element
    end: Element


class OdtParagraph:
    """A paragraph and what its codes stand for."""

    def __init__(self, element: Element, schema: OdtSchema) -> None:
        self._element, self._schema = element, schema
        self._codes: dict[int, Element | _Range] = {}
        items = [element.text or "", *self._items([*element], 0)]
        self.fragment: Fragment = make_fragment(items)

    def write(self, translation: str) -> None:
        """Replace the text by a translation of the fragment."""
        items = self.fragment.restore_codes(translation)
        self._element.text = None
        for child in [*self._element]:
            self._element.remove(child)
        self._fill(items)

    def _items(self, children: Sequence[Element], depth: int) -> Iterator[Item]:
        spans = find_ranges(children) if depth < _DEEPEST_RANGE else {}
        place = 0
        while place < len(children):
            child = children[place]
            number = len(self._codes) + 1
            if (span := spans.get(place)) is not None:
                last = children[span.end]
                self._codes[number] = _Range(child, last)
                yield from (Open(number), child.tail or "")
                yield from self._items(children[span.start : span.end], depth + 1)
                yield from (Close(number), last.tail or "")
                place = span.stop
                continue
            self._codes[number] = child
            yield from self._child_items(child, number, depth)
            yield child.tail or ""
            place += 1

    def _child_items(self, child: Element, number: int, depth: int) -> Iterator[Item]:
        schema = self._schema
        inside = schema.inner_element(child) if child.tag in schema.pairs else None
        if inside is not None:
            yield from (Open(number), inside.text or "")
            yield from self._items([*inside], depth + 1)
            yield Close(number)
            return
        code = Single(number, child.tag in schema.breaks, child.tag in schema.line_breaks)
        visible_text = "".join(map(str, child.itertext())) if child.tag in schema.generated else ""
        yield Protected(number, (code,), visible_text) if visible_text.strip() else code

    def _fill(self, items: Sequence[Item]) -> None:
        places = [self._element]
        for item in items:
            if isinstance(item, str):
                _add_text(places[-1], item)
                continue
            code = self._codes[item.number]
            if isinstance(code, _Range):
                _add(places[-1], code.end if isinstance(item, Close) else code.begin)
            elif isinstance(item, Close):
                places.pop()
            elif isinstance(item, Open):
                shell, inside = self._shell(code)
                _add(places[-1], shell)
                places.append(inside)
            else:
                _add(places[-1], code)

    def _shell(self, pair: Element) -> tuple[Element, Element]:
        """Return a copy of a pair without its words, and the element for the words."""
        shell = deepcopy(pair)
        inside = self._schema.inner_element(shell)
        assert inside is not None  # because it is a pair
        inside.text = None
        for child in [*inside]:
            inside.remove(child)
        return shell, inside


def _add(place: Element, element: Element) -> None:
    element.tail = None
    place.append(element)


def _add_text(place: Element, text: str) -> None:
    if len(place):
        place[-1].tail = (place[-1].tail or "") + text
    else:
        place.text = (place.text or "") + text

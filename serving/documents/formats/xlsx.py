"""Reads and writes .xlsx: cells that hold text, and comments.

Formulas, numbers, dates, codes and sheets' names stay; so do the headers of tables, by which
formulas and other parts name columns, and cells that formulas compare with a text.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.formats.office import Paragraph, open_package, parts_of
from serving.documents.formats.workbook import SHEETS, CellRange, named_cells, quoted_texts
from serving.documents.parts.inline import Fragment
from serving.documents.parts.package import Package
from serving.documents.parts.run_pieces import Grammar
from serving.documents.parts.runs import RunParagraph
from serving.documents.parts.spans import Mark, Role, Span
from serving.documents.parts.tags import message_pieces
from serving.documents.parts.xml import parse_xml, space_kept, written_xml

Element = etree._Element
MAIN_TYPE = "spreadsheetml.sheet"
_SHARED, _COMMENTS = "spreadsheetml.sharedStrings+xml", "spreadsheetml.comments+xml"
_THREADS = "ms-excel.threadedcomments+xml"
_PRONUNCIATION = frozenset({"rPh", "phoneticPr"})
_GRAMMAR = Grammar(leading=frozenset(), dropped=_PRONUNCIATION)
_ESCAPED = re.compile(r"(_x[\da-fA-F]{4}_)")  # a character that XML has not, as _x000D_
# What is written without a space and is no word: SKU-1234, user_id, ann@example.org, camelCase.
_CODE = re.compile(r"(?=\S*[\d_@]|\S*[a-z][A-Z]|\w+://)\S+")
_NUMBER_WORD = re.compile(r"\d+(?:(?:st|nd|rd|th)|(?:st|nd|rd|th)?(?:-[a-z]{3,})+)")
# Excel writes these for programs that do not know threads of comments.
_AUTHOR_OF_THREADS = "tc="


class PlainText:
    """Holds a text of one look, which stands in no run."""

    def __init__(self, item: Element, text: Element) -> None:
        self._item, self._text = item, text
        self._span = Span(0, 0, [*_pieces(text.text or "")])
        self.fragment: Fragment = self._span.fragment

    def write(self, translation: str) -> None:
        space_kept(self._text, self._span.translated(translation))
        for child in [*self._item]:
            if etree.QName(child).localname in _PRONUNCIATION:
                self._item.remove(child)


class Remark:
    """Holds the text of a comment behind its author's name, with which Excel begins it."""

    def __init__(self, text: Element, author: Element) -> None:
        self._text, self._author = text, author
        text.remove(author)
        self._paragraph = RunParagraph(text, _GRAMMAR)
        text.insert(0, author)
        self.fragment: Fragment = self._paragraph.fragment

    def write(self, translation: str) -> None:
        self._paragraph.write(translation)
        self._text.insert(0, self._author)


@dataclass(frozen=True)
class _Part:
    """Holds a part of the workbook. is_changed: it is written whatever is translated of it."""

    name: str
    tree: etree._ElementTree
    paragraphs: list[Paragraph]
    is_changed: bool = False


class XlsxDocument:
    def __init__(self, package: Package, parts: Sequence[_Part]) -> None:
        self._package, self._parts = package, parts

    @property
    def fragments(self) -> Sequence[str]:
        return [each.fragment.xml for part in self._parts for each in part.paragraphs]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        waiting = iter(translations)
        changed: dict[str, bytes] = {}
        for part in self._parts:
            for paragraph in part.paragraphs:
                paragraph.write(next(waiting))
            if part.paragraphs or part.is_changed:
                changed[part.name] = written_xml(part.tree)
        self._package.write(target, changed)


def read(path: Path) -> Document:
    """Raises RequestError."""
    package, types = open_package(path, MAIN_TYPE)
    named, quoted = named_cells(package, types), quoted_texts(package, types)
    needs_all = any(named.values())
    sheets = {
        name: parse_xml(package.read(name), name)
        for name in parts_of(types, SHEETS)
        if needs_all or b"inlineStr" in package.read(name)
    }
    shared = [(name, parse_xml(package.read(name), name)) for name in parts_of(types, _SHARED)[:1]]
    items = [item for _, tree in shared for item in tree.getroot().iter("{*}si")]
    only_named, also_named = _indices_of_named(sheets, named)
    translated = [item for n, item in enumerate(items) if str(n) not in only_named]
    parts = [
        *(_Part(name, tree, _with_words(_texts(translated, quoted))) for name, tree in shared),
        *(
            _sheet(name, tree, named[name], also_named, items, quoted)
            for name, tree in sheets.items()
        ),
        *_parts(package, parts_of(types, _COMMENTS), _remarks),
        *_parts(package, parts_of(types, _THREADS), _threaded_remarks),
    ]
    return XlsxDocument(package, parts)


def _parts(
    package: Package, names: Iterable[str], texts: Callable[[Element], Iterable[Paragraph]]
) -> Iterator[_Part]:
    for name in names:
        tree = parse_xml(package.read(name), name)
        yield _Part(name, tree, _with_words(texts(tree.getroot())))


def _with_words(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    return [each for each in paragraphs if each.fragment.has_words]


def _texts(items: Iterable[Element], quoted: frozenset[str] = frozenset()) -> Iterator[Paragraph]:
    """Yield the texts of items that have either text or runs, as those of cells have.

    quoted: what formulas compare cells with, in lower case; it stays.
    """
    for item in items:
        text = item.find("{*}t")
        if _text_of(item).lower() in quoted:
            continue
        if text is None:
            yield RunParagraph(item, _GRAMMAR)
        elif not _is_code((text.text or "").strip()):
            yield PlainText(item, text)


def _is_code(text: str) -> bool:
    return bool(_CODE.fullmatch(text)) and not _NUMBER_WORD.fullmatch(text)


def _pieces(text: str) -> Iterator[str | Mark]:
    for part in _ESCAPED.split(text):
        if _ESCAPED.match(part):
            yield Mark(part, Role.PARTS)
        else:
            yield from message_pieces(part)


def _indices_of_named(
    sheets: Mapping[str, etree._ElementTree], named: Mapping[str, Sequence[CellRange]]
) -> tuple[set[str], set[str]]:
    """Return which shared texts named cells alone have, and which of theirs others have too."""
    of_named: set[str] = set()
    of_others: set[str] = set()
    for name, tree in sheets.items():
        for cell in tree.getroot().iter("{*}c"):
            if (index := _shared_index(cell)) is not None:
                (of_named if _is_named(cell, named[name]) else of_others).add(index)
    return of_named - of_others, of_named & of_others


def _shared_index(cell: Element) -> str | None:
    value = cell.findtext("{*}v", "").strip() if cell.get("t") == "s" else ""
    return value if value.isdecimal() else None


def _is_named(cell: Element, ranges: Iterable[CellRange]) -> bool:
    return any(cell.get("r", "") in each for each in ranges)


def _sheet(
    name: str,
    tree: etree._ElementTree,
    named: Sequence[CellRange],
    also_named: set[str],
    shared: Sequence[Element],
    quoted: frozenset[str],
) -> _Part:
    """Read a sheet; named cells get texts of their own where other cells have the same."""
    cells = [*tree.getroot().iter("{*}c")]
    is_changed = False
    for cell in cells if named else ():
        index = _shared_index(cell)
        if index in also_named and _is_named(cell, named) and int(index) < len(shared):
            _give_own_text(cell, shared[int(index)])
            is_changed = True
    own = [text for cell in cells if not _is_named(cell, named) for text in cell.iter("{*}is")]
    return _Part(name, tree, _with_words(_texts(own, quoted)), is_changed)


def _give_own_text(cell: Element, shared: Element) -> None:
    value = cell.find("{*}v")
    assert value is not None  # of a cell with a shared text
    cell.set("t", "inlineStr")
    own = cell.makeelement(etree.QName(etree.QName(cell).namespace, "is"))
    own.extend(map(deepcopy, shared))
    cell.replace(value, own)


def _remarks(root: Element) -> Iterator[Paragraph]:
    authors = [(each.text or "").strip() for each in root.iter("{*}author")]
    for remark in root.iter("{*}comment"):
        number = remark.get("authorId", "")
        author = authors[int(number)] if number.isdecimal() and int(number) < len(authors) else ""
        text = remark.find("{*}text")
        if text is None or author.startswith(_AUTHOR_OF_THREADS):
            continue
        first = next(iter(text.iterchildren("{*}r")), None)
        if first is not None and author and _text_of(first) == f"{author}:":
            yield Remark(text, first)
        else:
            yield from _texts([text])


def _text_of(element: Element) -> str:
    return "".join(each.text or "" for each in element.iter("{*}t")).strip()


def _threaded_remarks(root: Element) -> Iterator[Paragraph]:
    """Yield comments; those that mention people say at which character they do, and stay."""
    for remark in root.iter("{*}threadedComment"):
        text = remark.find("{*}text")
        if text is not None and remark.find("{*}mentions") is None:
            yield PlainText(remark, text)

"""Reads paragraphs of runs, as Office Open XML writes text, and puts translations into them.

A run is a stretch of text with one set of properties. What most of a paragraph looks like needs no
code; what looks otherwise is a pair around its words, and whatever else stands there, a picture or
a note's mark, a code by itself that moves as it is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

from lxml import etree

from serving.documents.parts.inline import Close, Fragment, Item, Open, Single, fragment_of
from serving.documents.parts.xml import space_kept

Element = etree._Element
# Of properties what no reader sees: the language for spelling, and marks of its checks.
_UNSEEN_ATTRIBUTES = ("lang", "altLang", "dirty", "err", "smtClean", "noProof")
_UNSEEN_ELEMENTS = ("lang", "noProof")


@dataclass(frozen=True)
class Grammar:
    """Names the elements of one format's paragraphs, without their namespace.

    leading, trailing: what stays first, and last, in a paragraph.
    containers: what holds runs, as links do. inner: of a container, where it holds them, if deeper.
    breaks: what parts sentences. dropped: what programs write again.
    marks_space: text says itself that its spaces count.
    """

    leading: frozenset[str]
    trailing: frozenset[str] = frozenset()
    containers: frozenset[str] = frozenset()
    inner: str = ""
    breaks: frozenset[str] = frozenset({"br"})
    dropped: frozenset[str] = frozenset()
    marks_space: bool = True
    run: str = "r"
    properties: str = "rPr"
    text: str = "t"


@dataclass(frozen=True)
class _Text:
    """Holds text of a run. look: its properties as they are seen."""

    text: str
    look: bytes
    properties: Element | None


@dataclass(frozen=True)
class _Other:
    """Holds elements that move as they are. run: the one that they are in, if they are in one."""

    elements: tuple[Element, ...]
    parts: bool = False
    run: Element | None = None
    properties: Element | None = None


@dataclass(frozen=True)
class _Container:
    shell: Element
    content: tuple["_Piece", ...]


_Piece = _Text | _Other | _Container


class RunParagraph:
    """Holds one paragraph and what its codes stand for."""

    def __init__(self, element: Element, grammar: Grammar) -> None:
        self._element, self._grammar = element, grammar
        self._namespace = f"{{{etree.QName(element).namespace}}}"
        pieces = tuple(_Reader(grammar).pieces(element))
        self._base = _commonest(pieces)
        self._codes: dict[int, _Text | _Other | _Container] = {}
        self.fragment: Fragment = fragment_of([*self._items(pieces)])

    def write(self, translation: str) -> None:
        """Put a translation of the fragment in the place of the runs."""
        items = self.fragment.restored(translation)
        kept = [child for child in self._element if _name(child) in self._grammar.leading]
        last = [child for child in self._element if _name(child) in self._grammar.trailing]
        for child in [*self._element]:
            self._element.remove(child)
        self._element.extend(kept)
        self._fill(items)
        self._element.extend(last)

    def _items(self, pieces: Iterable[_Piece]) -> Iterator[Item]:
        for piece in pieces:
            if isinstance(piece, _Text) and (self._base is None or piece.look == self._base.look):
                yield piece.text
                continue
            number = len(self._codes) + 1
            self._codes[number] = piece
            if isinstance(piece, _Other):
                yield Single(number, piece.parts)
                continue
            yield Open(number)
            yield from [piece.text] if isinstance(piece, _Text) else self._items(piece.content)
            yield Close(number)

    def _fill(self, items: Sequence[Item]) -> None:
        places = [self._element]
        looks = [self._base.properties if self._base else None]
        for item in items:
            if isinstance(item, str):
                places[-1].append(self._run(item, looks[-1]))
                continue
            code = self._codes[item.number]
            if isinstance(code, _Other):
                _place_other(places[-1], code)
            elif isinstance(item, Close):
                (looks if isinstance(code, _Text) else places).pop()
            elif isinstance(code, _Text):
                looks.append(code.properties)
            else:
                shell = deepcopy(code.shell)
                inside = _inside(shell, self._grammar)
                for child in [*inside]:
                    inside.remove(child)
                places[-1].append(shell)
                places.append(inside)

    def _run(self, text: str, properties: Element | None) -> Element:
        run = self._element.makeelement(self._namespace + self._grammar.run)
        if properties is not None:
            run.append(deepcopy(properties))
        child = etree.SubElement(run, self._namespace + self._grammar.text)
        if self._grammar.marks_space:
            space_kept(child, text)
        else:
            child.text = text
        return run


class _Reader:
    """Reads the children of a paragraph, or of a container in it, as pieces."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar

    def pieces(self, element: Element) -> list[_Piece]:
        pieces: list[_Piece] = []
        children = iter(element)
        for child in children:
            if _begins_field(child):
                pieces.append(_Other((child, *_rest_of_field(child, children))))
            else:
                pieces += self._pieces_of(child)
        return _merged(pieces)

    def _pieces_of(self, child: Element) -> Iterator[_Piece]:
        grammar, name = self._grammar, _name(child)
        if name in grammar.leading | grammar.trailing | grammar.dropped:
            return
        if name == grammar.run:
            yield from self._of_run(child)
        elif name in grammar.containers:
            yield _Container(child, tuple(self.pieces(_inside(child, grammar))))
        else:
            yield _Other((child,), name in grammar.breaks)

    def _of_run(self, run: Element) -> Iterator[_Piece]:
        grammar = self._grammar
        properties = next((each for each in run if _name(each) == grammar.properties), None)
        look = _look(properties)
        for child in run:
            name = _name(child)
            if name == grammar.text:
                yield _Text(child.text or "", look, properties)
            elif name not in {grammar.properties} | grammar.dropped:
                yield _Other((child,), name in grammar.breaks, run, properties)


def _place_other(place: Element, code: _Other) -> None:
    if code.run is not None:
        place = etree.SubElement(place, code.run.tag)
        if code.properties is not None:
            place.append(deepcopy(code.properties))
    place.extend(code.elements)


def _name(element: Element) -> str:
    """Return the name without its namespace; empty of comments and the like."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _inside(container: Element, grammar: Grammar) -> Element:
    deeper = (each for each in container if grammar.inner and _name(each) == grammar.inner)
    return next(deeper, container)


def _look(properties: Element | None) -> bytes:
    if properties is None:
        return b""
    seen = deepcopy(properties)
    seen.tail = None
    for name in _UNSEEN_ATTRIBUTES:
        seen.attrib.pop(name, "")
    for child in [*seen]:
        if _name(child) in _UNSEEN_ELEMENTS:
            seen.remove(child)
    return etree.tostring(seen, method="c14n") if len(seen) or seen.attrib else b""


def _merged(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Join neighbouring texts of the same look: programs cut runs wherever something was edited."""
    merged: list[_Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, _Text) and isinstance(last, _Text) and last.look == piece.look:
            merged[-1] = _Text(last.text + piece.text, last.look, last.properties)
        else:
            merged.append(piece)
    return merged


def _commonest(pieces: Iterable[_Piece]) -> _Text | None:
    """Return a text that looks as most of the paragraph's characters do."""
    texts = [*_texts(pieces)]
    lengths: Counter[bytes] = Counter()
    for text in texts:
        lengths[text.look] += len(text.text)
    return max(texts, key=lambda text: lengths[text.look], default=None)


def _texts(pieces: Iterable[_Piece]) -> Iterator[_Text]:
    for piece in pieces:
        if isinstance(piece, _Text):
            yield piece
        elif isinstance(piece, _Container):
            yield from _texts(piece.content)


def field_marks(element: Element) -> list[str]:
    """Return the kinds of marks of fields in it, `begin` and `end` among them, in their order."""
    return [
        str(value)
        for each in element.iter()
        if _name(each) == "fldChar"
        for name, value in each.attrib.items()
        if str(name).endswith("fldCharType")
    ]


def _begins_field(child: Element) -> bool:
    return _name(child) == "r" and "begin" in field_marks(child)


def _rest_of_field(begun: Element, children: Iterator[Element]) -> Iterator[Element]:
    """Take what follows up to the end of the field, or of the paragraph."""
    depth = _depth_after(begun)
    while depth > 0 and (child := next(children, None)) is not None:
        depth += _depth_after(child)
        yield child


def _depth_after(element: Element) -> int:
    marks = field_marks(element)
    return marks.count("begin") - marks.count("end")

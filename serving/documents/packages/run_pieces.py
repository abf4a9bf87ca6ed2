"""Read the children of a paragraph of Office Open XML as pieces: text with one set of properties,
containers and ranges of pieces, and other elements.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from lxml import etree

from serving.documents.fragment import NO_BREAK_HYPHEN, SOFT_HYPHEN
from serving.documents.packages.ranges import (
    Fields,
    RangeSpan,
    find_ranges,
    local_name,
    shows_language,
)

Element = etree._Element
# Invisible properties: the language, marks of spell checking, and distances between letters.
_UNSEEN_ATTRIBUTES = (
    *("lang", "altLang", "dirty", "err", "smtClean", "noProof"),
    *("AppliedLanguage", "KerningValue", "Tracking"),
)
_UNSEEN_ELEMENTS = ("lang", "noProof")
_DEEPEST_RANGE = 20  # below it marks are single; each level is one of the stack, too
WORD_CHARACTERS = {"noBreakHyphen": NO_BREAK_HYPHEN, "softHyphen": SOFT_HYPHEN}


@dataclass(frozen=True)
class ParagraphSchema:
    """The element names of the paragraphs of one format, without their namespace.

    leading, trailing: stay first, and last, in a paragraph or a container.
    containers: contain runs, as links do. inner: the child of a container with the runs.
    fields: containers that show generated text. field_marks: other parts of fields, in runs.
    line_breaks: end lines. breaks: always end sentences.
    dropped: are generated again by programs.
    characters: elements that mean a character within a word.
    separators: pattern of characters that end sentences, as tabs between columns do.
    marks_space: text needs `xml:space` to keep spaces at its ends.
    has_attributes: properties are attributes of a run, too; they are kept as a run without text.
    """

    leading: frozenset[str]
    trailing: frozenset[str] = frozenset()
    containers: frozenset[str] = frozenset()
    inner: Mapping[str, str] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    field_marks: frozenset[str] = frozenset()
    line_breaks: frozenset[str] = frozenset({"br"})
    breaks: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    characters: Mapping[str, str] = field(default_factory=dict)
    separators: str = r"\t+"
    marks_space: bool = True
    has_attributes: bool = False
    run: str = "r"
    properties: str = "rPr"
    text: str = "t"

    def inner_element(self, container: Element) -> Element | None:
        """Return the element of a container that has its runs; None if there is none."""
        name = self.inner.get(local_name(container))
        if name is None:
            return container
        return next((child for child in container if local_name(child) == name), None)

    def run_properties(self, run: Element) -> Element | None:
        properties = next((child for child in run if local_name(child) == self.properties), None)
        return copy_shell(run, properties) if self.has_attributes else properties


def copy_shell(element: Element, child: Element | None) -> Element:
    """Return a copy of an element with a copy of one of its children alone."""
    shell = etree.Element(element.tag)
    for name, value in element.items():
        shell.set(name, value)
    if child is not None:
        shell.append(deepcopy(child))
    return shell


@dataclass(frozen=True)
class Leaf:
    """An element that is not divided. run: the run that it is in, if any."""

    element: Element
    run: Element | None = None

    @property
    def name(self) -> str:
        return local_name(self.element)


@dataclass(frozen=True)
class RunText:
    """Text of a run. formatting: its visible properties."""

    text: str
    formatting: str
    properties: Element | None


@dataclass(frozen=True)
class OtherPiece:
    """Elements that move as they are. visible_text: generated text of a field."""

    leaves: tuple[Leaf, ...]
    ends_sentence: bool = False
    is_line_break: bool = False
    is_generated: bool = False
    visible_text: str = ""


@dataclass(frozen=True)
class SeparatorPiece:
    """Tabs, which separate columns, or others of the schema's separators.

    properties: of their run.
    """

    text: str
    properties: Element | None


@dataclass(frozen=True)
class ContainerPiece:
    """Pieces in an element."""

    shell: Leaf
    content: tuple["Piece", ...]


@dataclass(frozen=True)
class RangePiece:
    """Pieces between two marks, as those of a comment or a field."""

    before: tuple[Leaf, ...]
    content: tuple["Piece", ...]
    after: tuple[Leaf, ...]


Piece = RunText | OtherPiece | SeparatorPiece | ContainerPiece | RangePiece


class PieceReader:
    """A reader of the children of a paragraph, or of a container in it, as pieces."""

    def __init__(self, schema: ParagraphSchema, fields: Fields) -> None:
        self._schema, self._fields = schema, fields

    def pieces(self, element: Element, depth: int = 0) -> tuple[Piece, ...]:
        """Return the pieces in an element. depth: number of containers and ranges that it is in."""
        return self._group_leaves([*self._leaves(element)], depth)

    def _leaves(self, element: Element) -> Iterator[Leaf]:
        schema = self._schema
        left_out = schema.leading | schema.trailing | schema.dropped
        for child in element:
            name = local_name(child)
            if name == schema.run:
                for inner in child:
                    if local_name(inner) not in schema.dropped | {schema.properties}:
                        yield Leaf(inner, child)
            elif name not in left_out:
                yield Leaf(child)

    def _group_leaves(self, leaves: Sequence[Leaf], depth: int) -> tuple[Piece, ...]:
        elements = [leaf.element for leaf in leaves]
        spans = find_ranges(elements, self._fields) if depth < _DEEPEST_RANGE else {}
        pieces: list[Piece] = []
        place = 0
        while place < len(leaves):
            leaf = leaves[place]
            if (span := spans.get(place)) is not None:
                stop = span.stop + _is_reference(leaves, span)
                pieces.append(self._range(leaves[place:stop], place, span, depth))
                place = stop
                continue
            if leaf.element in self._fields.generated or leaf.name in self._schema.field_marks:
                pieces.append(
                    OtherPiece((leaf,), is_generated=True, visible_text=self._visible_text(leaf))
                )
            else:
                pieces += self._piece(leaf, depth)
            place += 1
        return _merge_pieces(pieces)

    def _range(self, leaves: Sequence[Leaf], first: int, span: RangeSpan, depth: int) -> Piece:
        start, end = span.start - first, span.end - first
        content = self._group_leaves(leaves[start:end], depth + 1)
        if not any(iterate_texts(content)):
            return OtherPiece(
                (*leaves,),
                any(isinstance(piece, OtherPiece) and piece.ends_sentence for piece in content),
            )
        return RangePiece((*leaves[:start],), content, (*leaves[end:],))

    def _piece(self, leaf: Leaf, depth: int) -> Iterator[Piece]:
        schema, name = self._schema, leaf.name
        if leaf.run is not None and name in {schema.text, *schema.characters}:
            properties = schema.run_properties(leaf.run)
            text = schema.characters.get(name) or leaf.element.text or ""
            yield from self._split_at_separators(text, properties)
        elif (inside := self._inner_element(leaf)) is not None:
            yield ContainerPiece(leaf, self.pieces(inside, depth + 1))
        else:
            parts, is_line_break = name in schema.breaks, name in schema.line_breaks
            yield OtherPiece((leaf,), parts, is_line_break, visible_text=self._visible_text(leaf))

    def _split_at_separators(self, text: str, properties: Element | None) -> Iterator[Piece]:
        """Yield text, with its tabs and the like as pieces that end sentences."""
        for number, part in enumerate(re.split(f"({self._schema.separators})", text)):
            if number % 2:
                yield SeparatorPiece(part, properties)
            else:
                yield RunText(part, _formatting(properties), properties)

    def _visible_text(self, leaf: Leaf) -> str:
        """Return the text that a field, or a container that stays, shows."""
        schema = self._schema
        if leaf.name not in {schema.text, *schema.fields, *schema.containers}:
            return ""
        texts = leaf.element.iter(f"{{*}}{self._schema.text}")
        return "".join(text.text or "" for text in texts)

    def _inner_element(self, leaf: Leaf) -> Element | None:
        schema, element = self._schema, leaf.element
        if leaf.name in schema.fields:
            return element if shows_language(_instruction(element)) else None
        return schema.inner_element(element) if leaf.name in schema.containers else None


def iterate_texts(pieces: Iterable[Piece]) -> Iterator[RunText]:
    """Yield all texts in pieces."""
    for piece in pieces:
        if isinstance(piece, RunText):
            yield piece
        elif isinstance(piece, ContainerPiece | RangePiece):
            yield from iterate_texts(piece.content)


def _is_reference(leaves: Sequence[Leaf], span: RangeSpan) -> bool:
    """Return whether the reference to a comment follows the end of its range."""
    if span.stop >= len(leaves) or leaves[span.end].name != "commentRangeEnd":
        return False
    following = leaves[span.stop]
    ids = [leaf.element.attrib.values()[:1] for leaf in (leaves[span.end], following)]
    return following.name == "commentReference" and ids[0] == ids[1]


def _instruction(element: Element) -> str:
    values = (value for name, value in element.attrib.items() if str(name).endswith("}instr"))
    return str(next(values, ""))


def _formatting(properties: Element | None) -> str:
    if properties is None:
        return ""
    visible = deepcopy(properties)
    visible.tail = None
    for name in _UNSEEN_ATTRIBUTES:
        visible.attrib.pop(name, "")
    for child in [*visible]:
        if local_name(child) in _UNSEEN_ELEMENTS:
            visible.remove(child)
    if not len(visible) and not visible.attrib:
        return ""
    return "".join(
        f"{element.tag} {sorted(element.items())} {element.text}" for element in visible.iter()
    )


def _merge_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Join neighbouring texts of the same formatting, because programs split runs at every edit,
    and neighbouring generated parts of a field.
    """
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if (
            isinstance(piece, RunText)
            and isinstance(last, RunText)
            and last.formatting == piece.formatting
        ):
            merged[-1] = RunText(last.text + piece.text, last.formatting, last.properties)
        elif _is_generated(piece) and _is_generated(last):
            assert isinstance(piece, OtherPiece) and isinstance(last, OtherPiece)
            leaves, visible_text = (
                (*last.leaves, *piece.leaves),
                last.visible_text + piece.visible_text,
            )
            merged[-1] = replace(last, leaves=leaves, visible_text=visible_text)
        elif not (isinstance(piece, RunText) and not piece.text):
            merged.append(piece)
    return tuple(merged)


def _is_generated(piece: Piece | None) -> bool:
    return isinstance(piece, OtherPiece) and piece.is_generated

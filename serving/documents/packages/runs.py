"""Turn paragraphs of Office Open XML into fragments, and write translations into them.

A run is text with one set of properties. The most common properties of a paragraph need no code;
text with others is between two codes, and pictures, note marks and the like are single codes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy

from lxml import etree

from serving.documents.codes import Close, Item, Open, Protected, Shift, Single
from serving.documents.fragment import Fragment, make_fragment
from serving.documents.packages.ranges import NO_FIELDS, Fields, local_name
from serving.documents.packages.run_pieces import (
    ContainerPiece,
    Leaf,
    OtherPiece,
    ParagraphSchema,
    Piece,
    PieceReader,
    RangePiece,
    RunText,
    SeparatorPiece,
    iterate_texts,
)
from serving.documents.xml_trees import set_text

Element = etree._Element
_SHIFTS = {"superscript": Shift.SUPERSCRIPT, "subscript": Shift.SUBSCRIPT}


class RunParagraph:
    """A paragraph and what its codes stand for. fields: of its part of the document."""

    def __init__(
        self, element: Element, schema: ParagraphSchema, fields: Fields = NO_FIELDS
    ) -> None:
        self._element, self._schema = element, schema
        namespace = etree.QName(element).namespace
        self._namespace = f"{{{namespace}}}" if namespace else ""
        pieces = PieceReader(schema, fields).pieces(element)
        self._base = _commonest(pieces)
        self._codes: dict[int, Piece] = {}
        self._characters = self._elements_of_characters()
        self.fragment: Fragment = make_fragment([*self._items(pieces)])

    def write(self, translation: str) -> None:
        """Replace the runs by a translation of the fragment."""
        items = self.fragment.restore_codes(translation)
        leading = [child for child in self._element if local_name(child) in self._schema.leading]
        last = [child for child in self._element if local_name(child) in self._schema.trailing]
        for child in [*self._element]:
            self._element.remove(child)
        self._element.extend(leading)
        self._fill(items)
        self._element.extend(last)

    def _items(self, pieces: Iterable[Piece]) -> Iterator[Item]:
        for piece in pieces:
            if isinstance(piece, RunText) and (
                self._base is None or piece.formatting == self._base.formatting
            ):
                yield piece.text
                continue
            number = len(self._codes) + 1
            self._codes[number] = piece
            if isinstance(piece, OtherPiece):
                code = Single(number, piece.ends_sentence, piece.is_line_break)
                yield (
                    Protected(number, (code,), piece.visible_text)
                    if piece.visible_text.strip()
                    else code
                )
            elif isinstance(piece, SeparatorPiece):
                yield Single(number, ends_sentence=True)
            elif isinstance(piece, RunText):
                yield from (Open(number, _shift(piece.properties)), piece.text, Close(number))
            else:
                yield Open(number)
                yield from self._items(piece.content)
                yield Close(number)

    def _fill(self, items: Sequence[Item]) -> None:
        places = [self._element]
        formattings = [self._base.properties if self._base else None]
        for item in items:
            if isinstance(item, str):
                self._add_text(places[-1], item, formattings[-1])
                continue
            code = self._codes[item.number]
            if isinstance(code, SeparatorPiece):
                self._add_text(places[-1], code.text, code.properties)
            elif isinstance(code, OtherPiece):
                self._add_leaves(places[-1], code.leaves)
            elif isinstance(code, RunText):
                formattings.pop() if isinstance(item, Close) else formattings.append(
                    code.properties
                )
            elif isinstance(code, RangePiece):
                self._add_leaves(places[-1], code.after if isinstance(item, Close) else code.before)
            elif isinstance(item, Close):
                places.pop()
            else:
                places.append(self._add_shell(places[-1], code))

    def _add_text(self, place: Element, text: str, properties: Element | None) -> None:
        """Add a run with text, and elements for characters that the paragraph had as elements."""
        run = self._new_run(place, properties)
        pattern = "|".join(map(re.escape, self._characters)) or r"(?!)"
        for part in re.split(f"({pattern})", text):
            if part in self._characters:
                etree.SubElement(run, self._namespace + self._characters[part])
            elif part:
                child = etree.SubElement(run, self._namespace + self._schema.text)
                set_text(child, part, self._schema.marks_space)

    def _add_leaves(self, place: Element, leaves: Sequence[Leaf]) -> None:
        """Add elements as they are; those of one run come into one run."""
        run: Element | None = None
        last: Leaf | None = None
        for leaf in leaves:
            if leaf.run is None:
                place.append(leaf.element)
                run = None
            else:
                if run is None or last is None or last.run is not leaf.run:
                    run = self._run_like(place, leaf.run)
                run.append(leaf.element)
            last = leaf

    def _add_shell(self, place: Element, container: ContainerPiece) -> Element:
        """Add a container without its content; return the element for the content."""
        leaf = container.shell
        shell = deepcopy(leaf.element)
        shell.tail = None
        inside = self._schema.inner_element(shell)
        assert inside is not None  # because it is a container
        for child in [*inside]:
            if local_name(child) not in self._schema.leading:
                inside.remove(child)
        (place if leaf.run is None else self._run_like(place, leaf.run)).append(shell)
        return inside

    def _run_like(self, place: Element, run: Element) -> Element:
        return self._new_run(place, self._schema.run_properties(run))

    def _new_run(self, place: Element, properties: Element | None) -> Element:
        if properties is not None and self._schema.has_attributes:
            place.append(run := deepcopy(properties))
            return run
        run = etree.SubElement(place, self._namespace + self._schema.run)
        if properties is not None:
            run.append(deepcopy(properties))
        return run

    def _elements_of_characters(self) -> dict[str, str]:
        names = self._schema.characters
        return {
            names[name]: name
            for element in self._element.iter()
            if names and (name := local_name(element)) in names
        }


def _shift(properties: Element | None) -> Shift | None:
    """Return whether text of these properties is above or below the line."""
    if properties is None:
        return None
    for child in properties:
        if local_name(child) == "vertAlign":
            return next((_SHIFTS[v] for v in map(str, child.attrib.values()) if v in _SHIFTS), None)
    if position := properties.get("Position"):
        return _SHIFTS.get(position.lower())
    baseline = str(properties.get("baseline", "0"))
    if baseline.startswith("-"):
        return Shift.SUBSCRIPT
    return Shift.SUPERSCRIPT if baseline.strip("0%") else None


def _commonest(pieces: Iterable[Piece]) -> RunText | None:
    """Return a text with the properties that most characters of the paragraph have."""
    texts = [*iterate_texts(pieces)]
    lengths: Counter[str] = Counter()
    for text in texts:
        lengths[text.formatting] += len(text.text)
    return max(texts, key=lambda text: lengths[text.formatting], default=None)

"""Find fields of WordprocessingML, and ranges between two marks of one name, as of a comment or a
bookmark.

A field has the marks `begin`, `separate` and `end` in runs (ECMA-376, part 1, 17.16). Programs
generate what most fields show, as page numbers; of a few it is language, as the text of a link or
the headings of a table of contents.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lxml import etree

Element = etree._Element
_WITH_LANGUAGE = frozenset({"HYPERLINK", "FORMTEXT", "FILLIN", "TOC"})
# A field begins and ends in the same one of these.
_STORIES = frozenset({"txbxContent", "footnote", "endnote", "comment"})
_FIRST_WORD = re.compile(r"\s*(\w*)")
_MARK = re.compile(r"(\w+?)-?([Ss]tart|[Ee]nd)")
_IDS = frozenset({"id", "name", "change-id"})


def shows_language(instruction: str) -> bool:
    match = _FIRST_WORD.match(instruction)
    return match is not None and match[1].upper() in _WITH_LANGUAGE


def local_name(element: Element) -> str:
    """Return the name without its namespace; empty for comments and the like."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


@dataclass(eq=False)
class _Field:
    begin: Element
    separate: Element | None = None
    end: Element | None = None
    instruction: str = ""

    def read_before_text(self, element: Element, kind: str) -> None:
        """Read an element before the text that the field shows."""
        if kind == "separate":
            self.separate = element
        else:
            self.instruction += element.text or ""

    @property
    def language_marks(self) -> tuple[Element, Element] | None:
        """Return the marks before and after its text, if that is language."""
        if self.separate is None or self.end is None or not shows_language(self.instruction):
            return None
        return self.separate, self.end

    @property
    def last_generated(self) -> Element:
        last = self.language_marks[0] if self.language_marks else self.end
        assert last is not None
        return last


@dataclass(frozen=True)
class Fields:
    """The fields of one part of a document.

    generated: elements that stay: generated text, and instructions of fields.
    language_marks: by `begin` the marks `separate` and `end` of fields that show language.
    """

    generated: frozenset[Element] = frozenset()
    language_marks: Mapping[Element, tuple[Element, Element]] = field(default_factory=dict)

    def with_generated(self, elements: frozenset[Element]) -> "Fields":
        return replace(self, generated=self.generated | elements)


NO_FIELDS = Fields()


def find_fields(root: Element) -> Fields:
    """Return the fields that have an end."""
    ended = [field for field in [*_find_all_fields(root)] if field.end is not None]
    if not ended:
        return NO_FIELDS
    begins = {field.begin: field for field in ended}
    generated: set[Element] = set()
    language: dict[Element, tuple[Element, Element]] = {}
    ends: list[Element] = []  # the last generated element of each open field
    for element in root.iter():
        if (begun := begins.get(element)) is not None:
            if not ends and begun.language_marks is not None:
                language[element] = begun.language_marks
            ends.append(begun.last_generated)
        if ends:
            generated.add(element)
        if element in ends:
            ends.remove(element)
    return Fields(frozenset(generated), language)


def _find_all_fields(root: Element) -> Iterator[_Field]:
    """Yield all fields, also those without an end."""
    stories: dict[Element, list[_Field]] = {}
    for element in root.iter("{*}fldChar", "{*}instrText"):
        within = element.iterancestors()
        story = next((ancestor for ancestor in within if local_name(ancestor) in _STORIES), root)
        opened = stories.setdefault(story, [])
        kind = _kind(element)
        if kind == "begin":
            opened.append(_Field(element))
            yield opened[-1]
        elif opened and kind == "end":
            opened.pop().end = element
        elif opened and opened[-1].separate is None:
            opened[-1].read_before_text(element, kind)


def _kind(element: Element) -> str:
    values = (value for name, value in element.attrib.items() if str(name).endswith("fldCharType"))
    return str(next(values, ""))


class RangeSpan(NamedTuple):
    """The places of the content of a range. stop: of the element after the range."""

    start: int
    end: int
    stop: int


def find_ranges(elements: Sequence[Element], fields: Fields = NO_FIELDS) -> dict[int, RangeSpan]:
    """Return the ranges by the places of their first elements.

    They nest: of two ranges that cross one is left out, and none crosses a field.
    """
    spans = _field_spans(elements, fields)
    begins = {span.end: begin for begin, span in spans.items()}
    barriers: list[int] = []  # where the open fields begin
    opened: dict[tuple[str, str], int] = {}
    ranges: dict[int, RangeSpan] = {}
    for place, element in enumerate(elements):
        if place in spans:
            barriers.append(place)
        elif place in begins:
            barriers.pop()
            while opened and opened[next(reversed(opened))] > begins[place]:
                opened.popitem()
        elif element not in fields.generated and (mark := _mark(element)) is not None:
            kind, key = mark
            if kind == "start":
                opened[key] = place
            elif barriers and opened.get(key, place) < barriers[-1]:
                del opened[key]
            elif key in opened:
                begin = _close_range(opened, key)
                ranges[begin] = RangeSpan(begin + 1, place, place + 1)
    return {**spans, **ranges}


def _close_range(opened: dict[tuple[str, str], int], key: tuple[str, str]) -> int:
    """Return where a range was opened, and drop ranges that cross it."""
    while True:
        last, begin = opened.popitem()
        if last == key:
            return begin


def _field_spans(elements: Sequence[Element], fields: Fields) -> dict[int, RangeSpan]:
    if not fields.language_marks:
        return {}
    places = {element: place for place, element in enumerate(elements)}
    spans = {}
    for element, place in places.items():
        separate, end = fields.language_marks.get(element, (None, None))
        if separate in places and end in places:
            spans[place] = RangeSpan(places[separate] + 1, places[end], places[end] + 1)
    return spans


def _mark(element: Element) -> tuple[str, tuple[str, str]] | None:
    """Return whether a mark starts or ends a range, and the key that both marks share."""
    match = _MARK.fullmatch(local_name(element))
    if match is None:
        return None
    ids = [str(value) for name, value in element.attrib.items() if _name(str(name)) in _IDS]
    return match[2].lower(), (match[1], ids[0] if ids else "")


def _name(attribute: str) -> str:
    return attribute.rpartition("}")[2]

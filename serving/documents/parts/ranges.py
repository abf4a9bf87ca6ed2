"""Finds ranges among neighbouring elements: two marks of one name, as those of a comment or a
bookmark, and fields that show language.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from lxml import etree

from serving.documents.parts.fields import NO_FIELDS, Fields, local_name

Element = etree._Element
_MARK = re.compile(r"(\w+?)-?([Ss]tart|[Ee]nd)")
_IDS = frozenset({"id", "name", "change-id"})


class RangeSpan(NamedTuple):
    """Says where the content of a range lies among elements. stop: where the element after the
    range is.
    """

    start: int
    end: int
    stop: int


def find_ranges(elements: Sequence[Element], fields: Fields = NO_FIELDS) -> dict[int, RangeSpan]:
    """Return the ranges by the place of their first element. They nest: of two that cross, one is
    left out, and none crosses a field.
    """
    spans = _field_spans(elements, fields)
    begins = {span.end: begin for begin, span in spans.items()}
    barriers: list[int] = []  # where the fields begin that are open
    opened: dict[tuple[str, str], int] = {}
    ranges: dict[int, RangeSpan] = {}
    for place, element in enumerate(elements):
        if place in spans:
            barriers.append(place)
        elif place in begins:
            barriers.pop()
            while opened and opened[next(reversed(opened))] > begins[place]:
                opened.popitem()
        elif element not in fields.machine_made and (mark := _mark(element)) is not None:
            kind, key = mark
            if kind == "start":
                opened[key] = place
            elif barriers and opened.get(key, place) < barriers[-1]:
                del opened[key]
            elif key in opened:
                begin = _closed(opened, key)
                ranges[begin] = RangeSpan(begin + 1, place, place + 1)
    return {**spans, **ranges}


def _closed(opened: dict[tuple[str, str], int], key: tuple[str, str]) -> int:
    """Return where a range was opened; those opened within it that are still open cross it."""
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
    """Return whether a mark starts or ends a range, and by what the two find each other."""
    match = _MARK.fullmatch(local_name(element))
    if match is None:
        return None
    ids = [str(value) for name, value in element.attrib.items() if _name(str(name)) in _IDS]
    return match[2].lower(), (match[1], ids[0] if ids else "")


def _name(attribute: str) -> str:
    return attribute.rpartition("}")[2]

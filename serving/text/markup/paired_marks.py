"""Finds pairs of round brackets and quotation marks, and what encloses whole sentences."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.text.spans import Span

_MARK = re.compile(r"[()\"“”„‟«»‹›'‘’]")
ROUND_BRACKETS, APOSTROPHES = frozenset("()"), frozenset("'‘’")
_CLOSING = {"(": ")", "«": "»‹«", "‹": "›", "»": "«", "›": "‹", "„": '“”"', "‘": "’'"}
_CLOSING |= {"“": '”"', "”": "”", "‟": '”"', '"': '"”“', "'": "'’‘", "’": "’"}
_BEFORE_OPENING = re.compile(r"[\s(\[{<\"'“„«‹‘¿¡/–—-]")
_AFTER_CLOSING = re.compile(r"[\s)\]}>\"'”“»›’.,;:!?…/–—-]")
# Words that an apostrophe begins.
_ELIDED = re.compile(r"['’](?:tis|twas|twere|em|til|cause|bout|round|n|\d\ds?)\b", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")
_DASHES = frozenset("-–—―")
_CLOSING_APOSTROPHE = re.compile(r"(?<=\S)['’](?=[.,;:!?)]|\s|\Z)")
_OPENING_APOSTROPHE = re.compile(r"(?<=\s)['‘](?=\w)")
# Characters that are searched for the end of a quotation, and open marks that are searched for the
# one that is closed: else a text of nothing but such marks would take the square of its length.
_LONGEST_QUOTATION = 500
_MOST_NESTED = 20
_LEADING_MARKS = re.compile(r"(?:\.{2,}|…|[¡¿]{2,}|[:;,](?=\s))(?=\s*[^\s.…])")


@dataclass(frozen=True, slots=True)
class MarkPairs:
    """The brackets and quotation marks of a text, by their places.

    closing: of each opening mark, the place of the one that closes it.
    alone: those without a partner, and whether they open.
    """

    closing: Mapping[int, int]
    alone: Mapping[int, bool]

    @property
    def places(self) -> list[int]:
        return sorted({*self.closing, *self.closing.values(), *self.alone})


def find_pairs(text: str) -> MarkPairs:
    """Find the pairs of a text. Apostrophes that are no quotation marks are left out."""
    closing: dict[int, int] = {}
    alone: dict[int, bool] = {}
    opened: list[int] = []
    for match in _MARK.finditer(text):
        place, mark = match.start(), match.group()
        before, after = text[max(place - 1, 0) : place], text[place + 1 : place + 2]
        can_open = bool(after.strip()) and (not before or bool(_BEFORE_OPENING.match(before)))
        can_close = bool(before.strip()) and (not after or bool(_AFTER_CLOSING.match(after)))
        if mark in "()":
            can_open, can_close = mark == "(", mark == ")"
        elif mark in "«»‹›":
            can_open, can_close = can_open or mark in "«‹", can_close or mark in "»›"
        number = _number_of_partner(text, mark, opened) if can_close else None
        if number is not None and not _is_possessive(text, place, mark):
            closing[opened[number]] = place
            del opened[number:]
        elif can_open and not (mark in "'’" and _ELIDED.match(text, place)):
            opened.append(place)
            alone[place] = True
        elif mark not in APOSTROPHES:
            alone[place] = can_open
    paired = {*closing, *closing.values()}
    unpaired = {
        place: opens
        for place, opens in alone.items()
        if place not in paired and text[place] not in APOSTROPHES
    }
    return MarkPairs(closing, unpaired)


def _number_of_partner(text: str, mark: str, opened: Sequence[int]) -> int | None:
    """Return which of the marks that are open a mark closes."""
    for number in range(len(opened) - 1, max(len(opened) - _MOST_NESTED, 0) - 1, -1):
        if mark in _CLOSING[text[opened[number]]]:
            return number
    return None


def _is_possessive(text: str, place: int, mark: str) -> bool:
    """Return whether an apostrophe after an s within an open quotation belongs to the word: the
    quotation is closed later.
    """
    if mark not in "'’" or text[place - 1 : place] != "s" or text[place + 1 : place + 2] != " ":
        return False
    end = place + _LONGEST_QUOTATION
    later = _CLOSING_APOSTROPHE.search(text, place + 1, end)
    opens_again = _OPENING_APOSTROPHE.search(text, place + 1, end)
    return later is not None and not (opens_again and opens_again.start() < later.start())


def find_enclosed(text: str) -> Span:
    """Return where the text lies without the brackets and quotation marks that enclose all of it,
    those at its ends that have no other, marks before it and dashes after it; all of it
    where nothing else has letters.
    """
    start, end = 0, len(text)
    pairs = find_pairs(text)
    opening = {place: opened for opened, place in pairs.closing.items()}
    while start < end:
        if text[start].isspace():
            start += 1
        elif text[end - 1].isspace() or text[end - 1] in _DASHES:
            end -= 1
        elif run := _LEADING_MARKS.match(text, start, end):
            start = run.end()
        elif pairs.closing.get(start) == end - 1:
            start, end = start + 1, end - 1
        elif pairs.alone.get(start):
            start += 1
        elif pairs.alone.get(end - 1) is False and opening.get(end - 1) is None:
            end -= 1
        else:
            break
    return Span(start, end) if _LETTER.search(text, start, end) else Span(0, len(text))

"""Finds ICU messages in texts: `{n, plural, one {# dog} other {# dogs}}`.

What stands in their branches is text; all else of them is not.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_BEGIN = re.compile(r"\{\s*[\w.-]+\s*,\s*(plural|selectordinal|select)\s*,(?:\s*offset:\d+)?")
_SELECTOR = re.compile(r"\s*(?:=\d+|[^\s{}=,\ufdd0]+)\s*\{")
_END = re.compile(r"\s*\}")
_BRACE = re.compile(r"[{}]")
_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """Is either text or what parts texts. counts: `#` in this text is a number."""

    text: str
    is_text: bool
    counts: bool = False


def icu_pieces(text: str, counts: bool = False, depth: int = 0) -> Iterator[Piece]:
    """Yield a text as what stands within and outside the branches of its ICU messages."""
    end = 0
    closings = _closings(text) if depth < _MAX_DEPTH and _BEGIN.search(text) else {}
    while closings and (found := _BEGIN.search(text, end)):
        yield Piece(text[end : found.start()], True, counts)
        end = found.start()
        branches = [*_branches(text, found.end(), closings)]
        if not branches or (closing := _END.match(text, branches[-1][1] + 1)) is None:
            yield Piece(text[end : found.end()], True, counts)
            end = found.end()
            continue
        for branch_start, branch_end in branches:
            yield Piece(text[end:branch_start], False)
            inner = text[branch_start:branch_end]
            yield from icu_pieces(inner, counts or found[1] != "select", depth + 1)
            end = branch_end
        yield Piece(text[end : closing.end()], False)
        end = closing.end()
    yield Piece(text[end:], True, counts)


def _branches(text: str, place: int, closings: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield where the texts of a message's branches are."""
    while (selector := _SELECTOR.match(text, place)) and selector.end() - 1 in closings:
        end = closings[selector.end() - 1]
        yield selector.end(), end
        place = end + 1


def _closings(text: str) -> dict[int, int]:
    """Return where each brace is closed that is."""
    closings: dict[int, int] = {}
    opened: list[int] = []
    for found in _BRACE.finditer(text):
        if found.group() == "{":
            opened.append(found.start())
        elif opened:
            closings[opened.pop()] = found.start()
    return closings

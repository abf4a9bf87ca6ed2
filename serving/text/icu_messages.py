"""Finds the arguments with branches of text in ICU messages: plural, select and selectordinal."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from serving.text.spans import Span

_BEGINNING = re.compile(
    r"\{\s*[\w.-]+\s*,\s*(plural|select|selectordinal)\s*,\s*(?:offset:\d+\s*)?"
)
_SELECTOR = re.compile(r"\s*(=\d+|[^\s{}'=,\ufdd0]+)\s*\{")  # U+FDD0: a code in documents
_END = re.compile(r"\s*\}")
_QUOTED = re.compile(r"''|'[{}#|][^']*'")
_MOST_NESTED = 5  # arguments in branches of others, of two braces each


@dataclass(frozen=True, slots=True)
class IcuArgument:
    """An argument with branches of text.

    span: of the message, with its braces.
    branches: the spans of the branches' texts.
    selectors: of each branch, as "one" or "=0".
    has_number: a "#" in a branch stands for the argument's number.
    """

    span: Span
    branches: tuple[Span, ...]
    selectors: tuple[str, ...]
    has_number: bool


def find_arguments(message: str) -> Iterator[IcuArgument]:
    """Yield the arguments with branches that are within no other and well-formed."""
    start = 0
    while match := _BEGINNING.search(message, start):
        argument = _read_argument(message, match)
        if argument is not None:
            yield argument
        start = match.end() if argument is None else argument.span.end


def _read_argument(message: str, beginning: re.Match[str]) -> IcuArgument | None:
    branches, selectors, position = [], [], beginning.end()
    while selector := _SELECTOR.match(message, position):
        end = _find_branch_end(message, selector.end())
        if end is None:
            return None
        branches.append(Span(selector.end(), end))
        selectors.append(selector[1])
        position = end + 1
    if not branches or not (end_match := _END.match(message, position)):
        return None
    span = Span(beginning.start(), end_match.end())
    return IcuArgument(span, tuple(branches), tuple(selectors), beginning[1] != "select")


def _find_branch_end(message: str, start: int) -> int | None:
    """Return the position of the brace that closes a branch, or None."""
    depth, position = 1, start
    while position < len(message):
        character = message[position]
        if character == "'" and (quoted := _QUOTED.match(message, position)):
            position = quoted.end()
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return position
        if depth > 2 * _MOST_NESTED:
            return None
        position += 1
    return None

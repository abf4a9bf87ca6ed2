"""Separates the number of an item from its text, as "2-" of 2-<i>Paris, Rome</i>."""

import re
from collections.abc import Iterable, Iterator, Sequence

from serving.text.markup.tokens import Role, Token, join_text, split_passages

# The number of an item, a sign between.
_LABEL_BEFORE = re.compile(r"[(#№]?\d{1,4}\)?[-–—/:.]")
_LABEL_AFTER = re.compile(r"[-–—/]\d{1,4}")
_HAS_WORD = re.compile(r"[^\W\d_]{4}|[^\W\d_]{2},? [^\W\d_]{2}")


def with_labels_as_breaks(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens; the number of an element that is all else of a passage is a break, as "2-"
    of 2-<i>Paris, Rome</i>.
    """
    for passage in split_passages(tokens):
        places = [number for number, token in enumerate(passage) if token.raw.strip()]
        label = _label(passage, places)
        for number, token in enumerate(passage):
            yield Token(Role.BREAK, token.raw) if number == label else token


def _label(tokens: Sequence[Token], places: Sequence[int]) -> int | None:
    """Return which token is the number of an element; None if there is none."""
    if len(places) < 4 or not _HAS_WORD.search(join_text(tokens)):
        return None
    first, last = tokens[places[0]], tokens[places[-1]]
    if first.is_divisible and _LABEL_BEFORE.fullmatch(first.text.strip()):
        label, start, stop = places[0], places[1], places[-1]
    elif last.is_divisible and _LABEL_AFTER.fullmatch(last.text.strip()):
        label, start, stop = places[-1], places[0], places[-2]
    else:
        return None
    depth = 0
    for number in range(start, stop):
        depth += (tokens[number].role is Role.OPEN) - (tokens[number].role is Role.CLOSE)
        if depth <= 0:
            return None
    return label if depth == 1 and tokens[stop].role is Role.CLOSE else None

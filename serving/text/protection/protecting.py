"""Takes what must not change out of a text before a model reads it.

A model reads a short name in its place, as X1: small models copy names of few letters and figures,
and spell out anew, mostly wrongly, what is longer.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby

from serving.text.alignment import Span
from serving.text.markup.tokens import Role, Token, divided, placed, read, written
from serving.text.protection.patterns import EMOJI, kept_end

_STAND_IN = re.compile(r"X\d+")


def protected(
    tokens: Iterable[Token], pattern: re.Pattern[str], keeps_emoji: bool = False
) -> Iterator[Token]:
    """Yield the tokens, with what matches apart, to be kept; on demand with emoji as marks."""
    for is_text, group in groupby(tokens, key=lambda token: token.role is Role.TEXT):
        if is_text:
            yield from _protected_text([*group], pattern, keeps_emoji)
        else:
            yield from group


def with_stand_ins(passage: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens, those that are kept read as names that are nowhere else in the passage;
    what is kept side by side is one.
    """
    known = {*_STAND_IN.findall(read(passage))}
    names = (name for name in map("X{}".format, count(1)) if name not in known)
    for is_kept, group in groupby(passage, key=lambda token: token.role is Role.KEPT):
        if is_kept:
            yield Token(Role.KEPT, written(group), next(names))
        else:
            yield from group


def _protected_text(
    tokens: list[Token], pattern: re.Pattern[str], keeps_emoji: bool
) -> Iterator[Token]:
    text = read(tokens)
    kept = [*_kept(text, pattern)]
    found = sorted([*kept, *_emoji(text, kept)]) if keeps_emoji else kept
    borders = [border for span in found for border in span]
    pieces = placed(divided(tokens, borders))
    for slot, group in groupby(pieces, key=lambda piece: bisect_right(borders, piece[1].start)):
        part = [token for token, _ in group]
        if slot % 2 == 0:
            yield from part
        elif keeps_emoji and EMOJI.fullmatch(read(part)):
            yield Token(Role.POINT, written(part))
        else:
            yield Token(Role.KEPT, written(part), read(part))


def _kept(text: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    start = 0
    while match := pattern.search(text, start):
        start = max(kept_end(match), match.start() + 1)
        yield Span(match.start(), start)


def _emoji(text: str, kept: Sequence[Span]) -> Iterator[Span]:
    """Yield where emoji stand that are in nothing that is kept."""
    starts = [span.start for span in kept]
    for match in EMOJI.finditer(text):
        before = bisect_right(starts, match.end() - 1) - 1
        if before < 0 or kept[before].end <= match.start():
            yield Span(*match.span())

"""Takes what must not change out of a text before a model reads it.

A model reads a short name in its place, as X1: small models copy names of few letters and figures,
and spell out anew, mostly wrongly, what is longer.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from itertools import count, groupby

from serving.text.alignment import Span
from serving.text.markup.tokens import Role, Token, divided, placed, read, translations, written
from serving.text.protection.names import WITH_CAPITAL_NOUNS, KnownWords
from serving.text.protection.numbers import (
    has_24_hours,
    in_24_hours,
    localised,
    localised_amount,
)
from serving.text.protection.patterns import (
    AMOUNT,
    EMOJI,
    KEPT,
    MAY_BE_EMOJI,
    MAY_BE_KEPT,
    NUMBER,
    QUANTITY,
    TIME_OF_DAY,
    kept_end,
)


class _Kind(IntEnum):
    KEPT = auto()
    EMOJI = auto()
    TIME = auto()
    AMOUNT = auto()
    QUANTITY = auto()
    NUMBER = auto()


_WHOLE = [
    (_Kind.KEPT, KEPT),
    (_Kind.EMOJI, EMOJI),
    (_Kind.TIME, TIME_OF_DAY),
    (_Kind.AMOUNT, AMOUNT),
    (_Kind.QUANTITY, QUANTITY),
    (_Kind.NUMBER, NUMBER),
]
_STAND_IN = re.compile(r"X\d+")


@dataclass(frozen=True, slots=True)
class Protection:
    """Finds what must not change.

    placeholders: what is kept in any case; None for nothing.
    is_whole: addresses, code and the like are kept too, quantities and numbers as the target
        writes them, and emoji are marks.
    source, target: languages, in two letters.
    known_words: names that are none of them are kept too; None where it is not known what a model
        knows.
    """

    placeholders: re.Pattern[str] | None
    is_whole: bool
    source: str
    target: str
    known_words: KnownWords | None = None

    def protected(self, tokens: Iterable[Token]) -> Iterator[Token]:
        """Yield the tokens, with those apart that are protected."""
        for is_text, group in groupby(tokens, key=lambda token: token.role is Role.TEXT):
            if is_text:
                yield from self._protected_text([*group])
            else:
                yield from group

    def _protected_text(self, tokens: list[Token]) -> Iterator[Token]:
        found = self._found(read(tokens))
        borders = [border for span, _ in found for border in span]
        pieces = placed(divided(tokens, borders))
        for slot, group in groupby(pieces, key=lambda piece: bisect_right(borders, piece[1].start)):
            part = [token for token, _ in group]
            if slot % 2:
                yield self._token(found[slot // 2][1], part)
            else:
                yield from part

    def _found(self, text: str) -> list[tuple[Span, _Kind]]:
        """Return what is protected in a text, in order; what is found first is in nothing else."""
        taken = bytearray(len(text))
        found = []
        for span, kind in self._candidates(text):
            if not any(taken[span.start : span.end]):
                taken[span.start : span.end] = b"x" * (span.end - span.start)
                found.append((span, kind))
        return sorted(found)

    def _candidates(self, text: str) -> Iterator[tuple[Span, _Kind]]:
        for kind, pattern in self._patterns(text):
            yield from ((span, kind) for span in _spans(text, pattern))
        if self.is_whole and self.known_words and self.source not in WITH_CAPITAL_NOUNS:
            yield from ((span, _Kind.KEPT) for span in self.known_words.unknown_names(text))

    def _patterns(self, text: str) -> Iterator[tuple[_Kind, re.Pattern[str]]]:
        if self.placeholders is not None:
            yield _Kind.KEPT, self.placeholders
        if self.is_whole and MAY_BE_KEPT.search(text):
            yield from _WHOLE
        elif self.is_whole and MAY_BE_EMOJI.search(text):
            yield _Kind.EMOJI, EMOJI

    def _token(self, kind: _Kind, part: list[Token]) -> Token:
        raw, text = written(part), read(part)
        if kind is _Kind.EMOJI:
            return Token(Role.POINT, raw)
        if kind is _Kind.NUMBER:
            return Token(Role.NUMBER, raw, text, localised(text, self.source, self.target))
        return Token(Role.KEPT, raw, text, self._translation(kind, raw))

    def _translation(self, kind: _Kind, text: str) -> str:
        if kind is _Kind.TIME:
            return self._time(text)
        if kind is _Kind.QUANTITY:
            return localised(text, self.source, self.target)
        if kind is _Kind.AMOUNT:
            return localised_amount(text, self.source, self.target)
        return text

    def _time(self, text: str) -> str:
        """Write a time as the target has it: few models turn p.m. into hours after 12."""
        found = TIME_OF_DAY.match(text)
        if found is None or not has_24_hours(self.target):
            return text
        return in_24_hours(int(found[1]), found[2], found[3] in "pP")


def with_stand_ins(passage: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens, those that are kept read as names that are nowhere else in the passage;
    what is kept side by side is one.
    """
    known = {*_STAND_IN.findall(read(passage))}
    names = (name for name in map("X{}".format, count(1)) if name not in known)
    for is_kept, group in groupby(passage, key=lambda token: token.role is Role.KEPT):
        if is_kept:
            kept = [*group]
            yield Token(Role.KEPT, written(kept), next(names), translations(kept))
        else:
            yield from group


def _spans(text: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    start = 0
    while match := pattern.search(text, start):
        start = max(kept_end(match), match.start() + 1)
        yield Span(match.start(), start)

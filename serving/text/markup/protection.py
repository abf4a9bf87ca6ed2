"""Finds what must not change in a text, and makes tokens of it that are not translated, or are
written as the target language writes them.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from itertools import groupby

from serving.text.abbreviations import sentence_continues
from serving.text.formatting import LANGUAGES_WITH_CAPITALIZED_NOUNS
from serving.text.markup.accelerators import with_accelerator_at_word
from serving.text.markup.kaomoji import find_kaomoji
from serving.text.markup.known_words import KnownWords
from serving.text.markup.number_formats import (
    has_24_hours,
    localize_amount,
    localize_number,
    scaled_amounts,
    to_24_hours,
)
from serving.text.markup.patterns import (
    BORDER,
    BRACKETS,
    EMOJI,
    INVERTED_MARKS,
    MAY_BE_NON_TRANSLATABLE,
    NON_TRANSLATABLE,
    PHRASE_BRACKETS,
    RUN,
    SIGNS,
    SIGNS_IN_BRACKETS,
    TAG,
    end_of_match,
    foreign_words,
    separators,
    words_with_signs,
)
from serving.text.markup.tagged_spans import with_tagged_spans
from serving.text.markup.tokens import Role, Token, join_raw, join_text, split_at, with_spans
from serving.text.markup.typography import run_as_read, with_usual_characters
from serving.text.markup.written_units import TIME_OF_DAY, written_units
from serving.text.spans import Span

# What a part must hold to belong to the non-translatable one that it overlaps.
_IDENTIFIER_SIGN = re.compile(r"[\d#@№_/\\=+*~^|$&]")
_IDENTIFIER_PART = re.compile(rf"{_IDENTIFIER_SIGN.pattern}|[-.:]\w")
_TIME_WITH_MERIDIEM = re.compile(r"[ap]\. ?m\.?", re.IGNORECASE)
# Languages that write a space before these marks.
_WITH_SPACED_MARKS = frozenset({"fr"})
_WITH_INVERTED_MARKS = frozenset({"es", "gl", "ast"})
_WITH_ELISIONS = frozenset({"fr", "it", "ca", "oc"})


class _Kind(IntEnum):
    """What a protected part of a text is.

    TERM: of the glossary; it is translated.
    WHOLE: kept to the letter.
    TIME, AMOUNT, QUANTITY, NUMBER: as in `UnitKind`.
    POINT: a sign that the model does not read, as an emoji.
    RUN: a run of marks, as "?!", of which the model reads one.
    BREAK: it separates sentences.
    OPENING, CLOSING: brackets, which the model does not read.
    """

    TERM = auto()
    WHOLE = auto()
    TIME = auto()
    AMOUNT = auto()
    QUANTITY = auto()
    NUMBER = auto()
    POINT = auto()
    RUN = auto()
    BREAK = auto()
    OPENING = auto()
    CLOSING = auto()


_JOINABLE = frozenset({_Kind.WHOLE, _Kind.TIME, _Kind.AMOUNT, _Kind.QUANTITY, _Kind.NUMBER})
_ROLES = {
    _Kind.RUN: Role.TEXT,
    _Kind.NUMBER: Role.NUMBER,
    _Kind.POINT: Role.POINT,
    _Kind.BREAK: Role.BREAK,
    _Kind.OPENING: Role.OPEN,
    _Kind.CLOSING: Role.CLOSE,
}
_KINDS = {BORDER: _Kind.BREAK, TAG: _Kind.POINT}


@dataclass(frozen=True, slots=True)
class Protection:
    """Finds what must not change.

    placeholders: of the job; they never change.
    protects_all: neither do addresses, code, signs and the like; quantities and numbers are written
        as the target language writes them, and emoji are points.
    source, target: languages, in two letters.
    known_words: other names are not translated either; None if it is not known which words the
        model knows.
    terms: finds the terms of a glossary in a text; they are translated, whatever they look like,
        unless they are within something that is not translated. None without a glossary.
    """

    placeholders: re.Pattern[str] | None
    protects_all: bool
    source: str
    target: str
    known_words: KnownWords | None = None
    terms: Callable[[str], Iterable[Span]] | None = None

    def has_names(self, text: str) -> bool:
        """Return whether a text has terms of the glossary, references or unknown names."""
        if self.terms is not None and any(True for _ in self.terms(text)):
            return True
        if self.known_words is None:
            return False
        return self.known_words.has_names(text, self.source in LANGUAGES_WITH_CAPITALIZED_NOUNS)

    def with_tagged_spans(self, tokens: Iterable[Token]) -> Iterator[Token]:
        """Yield the tokens, with code, addresses and the like that have tags in them as one."""
        if self.protects_all or self.placeholders is not None:
            return with_tagged_spans(tokens, self._whole_spans)
        return iter(tokens)

    def _whole_spans(self, text: str) -> Iterator[tuple[Span, str | None]]:
        """Yield what is not translated wherever it stands, and the name of its pattern."""
        if self.placeholders is not None:
            yield from _find_matches(text, self.placeholders)
        if self.protects_all and MAY_BE_NON_TRANSLATABLE.search(text):
            yield from _find_matches(text, NON_TRANSLATABLE)

    def protect(self, tokens: Iterable[Token]) -> Iterator[Token]:
        """Yield the tokens, split where something is protected."""
        for is_text, group in groupby(tokens, key=lambda token: token.role is Role.TEXT):
            if is_text:
                yield from self._protect_text([*group])
            else:
                yield from group

    def _protect_text(self, tokens: list[Token]) -> Iterator[Token]:
        if self.protects_all:
            tokens = [*with_accelerator_at_word(tokens)]
            if any(token.role is Role.POINT for token in tokens):
                yield from self.protect(tokens)
                return
        parts = self._find_protected(join_text(tokens))
        borders = [border for span, _ in parts for border in span]
        pieces = with_spans(split_at(tokens, borders))
        for slot, group in groupby(pieces, key=lambda piece: bisect_right(borders, piece[1].start)):
            part = [token for token, _ in group]
            kind = parts[slot // 2][1] if slot % 2 else _Kind.TERM
            if kind is not _Kind.TERM:
                yield self._make_token(kind, part)
            elif self.protects_all:
                yield from with_usual_characters(part, self.source)
            else:
                yield from part

    def _find_protected(self, text: str) -> list[tuple[Span, _Kind]]:
        """Return what is protected in a text, in order. Of parts that overlap the first counts; a
        later one joins it if it holds more of an identifier, as -4471 of #A-4471.
        """
        owners = [0] * len(text)
        accepted: dict[int, tuple[Span, _Kind]] = {}
        for number, (span, kind) in enumerate(self._candidates(text), 1):
            if kind in (_Kind.WHOLE, _Kind.QUANTITY) and _is_in_brackets(text, span):
                span = Span(span.start - 1, span.end + 1)
            if span.start >= span.end:
                continue
            overlapped = {*owners[span.start : span.end]} - {0}
            if overlapped:
                parts = [accepted[owner] for owner in overlapped]
                if not _belongs_together(text, span, kind, parts):
                    continue
                starts, ends = zip(span, *(part for part, _ in parts), strict=True)
                span, kind = Span(min(starts), max(ends)), _Kind.WHOLE
                for owner in overlapped:
                    del accepted[owner]
            owners[span.start : span.end] = [number] * (span.end - span.start)
            accepted[number] = span, kind
        return sorted(accepted.values())

    def _candidates(self, text: str) -> Iterator[tuple[Span, _Kind]]:
        """Yield what may be protected; of parts that overlap the first counts.

        The order goes from what is sure to what only looks so: the job's own placeholders, faces,
        what has a syntax (addresses, code), emoji, the glossary's terms, marks, and then numbers,
        words with signs and unknown names, which would be found within all the others.
        """
        may_be_non_translatable = self.protects_all and MAY_BE_NON_TRANSLATABLE.search(text)
        terms = [*self.terms(text)] if self.terms is not None else []
        if self.placeholders is not None:
            yield from _find_non_translatable(text, self.placeholders)
        if may_be_non_translatable:
            yield from ((span, _Kind.POINT) for span in find_kaomoji(text))
            matches = _find_non_translatable(text, NON_TRANSLATABLE)
            yield from (  # a term that has signs itself, as +size, stays a term
                part for part in matches if not any(_contains(term, part[0]) for term in terms)
            )
            yield from ((Span(*match.span()), _Kind.POINT) for match in EMOJI.finditer(text))
            yield from ((span, _Kind.BREAK) for span in separators(text))
        yield from ((span, _Kind.TERM) for span in terms)
        if not self.protects_all:
            return
        yield from ((Span(*m.span()), _Kind.POINT) for m in SIGNS_IN_BRACKETS.finditer(text))
        if not {self.source, self.target} & _WITH_INVERTED_MARKS:
            yield from ((Span(*m.span()), _Kind.POINT) for m in INVERTED_MARKS.finditer(text))
        yield from ((Span(*m.span()), _Kind.RUN) for m in RUN.finditer(text))
        if self.known_words:
            yield from ((span, _Kind.WHOLE) for span in self.known_words.references(text))
        if may_be_non_translatable:
            yield from self._written_parts(text)
        if self.known_words and self.source not in LANGUAGES_WITH_CAPITALIZED_NOUNS:
            yield from ((span, _Kind.WHOLE) for span in self.known_words.unknown_names(text))
            # A name with a term of the glossary in it is not found as a whole: its other words are.
            yield from ((span, _Kind.WHOLE) for span in self.known_words.unknown_words(text))

    def _written_parts(self, text: str) -> Iterator[tuple[Span, _Kind]]:
        """Yield amounts, units, words with signs, signs and brackets.

        Amounts with a scale come before the units that they begin with ($3 of $3 million); brackets
        around several words before words with brackets (dogs[0]), and these before lone signs and
        before brackets around one word.
        """
        yield from ((span, _Kind.AMOUNT) for span in scaled_amounts(text, self.source))
        for span, unit in written_units(text, self.source in _WITH_ELISIONS):
            if text[span.end : span.end + 1] == "." and self._is_stop_of_meridiem(text, span):
                span = Span(span.start, span.end + 1)
            yield span, _Kind[unit.name]
        yield from _find_brackets(text, PHRASE_BRACKETS)
        yield from ((span, _Kind.WHOLE) for span in words_with_signs(text))
        start = len(text) - len(text.lstrip())
        for match in SIGNS.finditer(text):
            yield (
                Span(*match.span()),
                _Kind.WHOLE if _stands_for_word(match, start) else _Kind.POINT,
            )
        yield from _find_brackets(text, BRACKETS)
        yield from ((span, _Kind.WHOLE) for span in foreign_words(text, self.source))

    def _is_stop_of_meridiem(self, text: str, time: Span) -> bool:
        """Return whether the stop after a time is that of "p.m." within a sentence."""
        end = time.end + 1
        is_time = _TIME_WITH_MERIDIEM.search(text, max(time.end - 4, time.start), time.end)
        return bool(
            is_time
            and text[end:].strip()
            and sentence_continues(text[:end].lower(), text[end:], self.source)
        )

    def _make_token(self, kind: _Kind, part: list[Token]) -> Token:
        raw, text = join_raw(part), join_text(part)
        role = _ROLES.get(kind, Role.NON_TRANSLATABLE)
        if role in (Role.POINT, Role.BREAK):
            return Token(role, raw)
        if role in (Role.OPEN, Role.CLOSE):
            return Token(role, raw, name="]")
        if kind is _Kind.RUN:
            is_spaced = self.target in _WITH_SPACED_MARKS and text[0] in "!?"
            return Token(role, raw, run_as_read(text), " " * is_spaced + text)
        if role is Role.NUMBER:
            return Token(role, raw, text, localize_number(text, self.source, self.target))
        translation = self._localize(kind, text)
        return Token(
            role, raw, text, raw if translation == text else _with_references(part, translation)
        )

    def _localize(self, kind: _Kind, text: str) -> str:
        if kind is _Kind.TIME:
            return self._localize_time(text)
        if kind is _Kind.QUANTITY:
            return localize_number(text, self.source, self.target)
        if kind is _Kind.AMOUNT:
            return localize_amount(text, self.source, self.target)
        return text

    def _localize_time(self, text: str) -> str:
        """Return a time as the target language has it: few models turn p.m. into hours after 12."""
        time = TIME_OF_DAY.match(text)
        if time is None or not has_24_hours(self.target):
            return text
        return to_24_hours(int(time[1]), time[2], time[3] in "pP")


def _belongs_together(
    text: str, span: Span, kind: _Kind, overlapped: Sequence[tuple[Span, _Kind]]
) -> bool:
    """Return whether a part is of one thing with those that it overlaps."""
    if kind not in _JOINABLE or not all(other in _JOINABLE for _, other in overlapped):
        return False
    rest = [*text[span.start : span.end]]
    for part, _ in overlapped:
        for place in range(max(part.start, span.start), min(part.end, span.end)):
            rest[place - span.start] = " "
    pattern = _IDENTIFIER_SIGN if text[span.start] in "{}%<" else _IDENTIFIER_PART
    return pattern.search("".join(rest)) is not None


def _is_in_brackets(text: str, span: Span) -> bool:
    """Return whether round brackets are around a part and nothing else, so that they belong to
    it.
    """
    return text[max(span.start - 1, 0) : span.start] == "(" and text[span.end : span.end + 1] == ")"


def _find_brackets(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[Span, _Kind]]:
    for match in pattern.finditer(text):
        yield Span(match.start(), match.start() + 1), _Kind.OPENING
        yield Span(match.end() - 1, match.end()), _Kind.CLOSING


def _stands_for_word(sign: re.Match[str], start: int) -> bool:
    """Return whether a sign stands for a word between others: one of a keyboard, with spaces around
    it.

    start: of the text that it stands in, after its spaces.
    """
    begins = sign.start() <= start
    return sign.group().isascii() and sign.group() != "&" and not begins


def _with_references(part: Iterable[Token], translation: str) -> str:
    """Return a translation with characters written by the references that its source has."""
    table = {ord(token.text): token.raw for token in part if len(token.text) == 1}
    return translation.translate({code: raw for code, raw in table.items() if raw != chr(code)})


def _contains(term: Span, span: Span) -> bool:
    return term.start <= span.start and span.end <= term.end


def _find_non_translatable(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[Span, _Kind]]:
    for span, group in _find_matches(text, pattern):
        yield span, _KINDS.get(group or "", _Kind.WHOLE)


def _find_matches(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[Span, str | None]]:
    """Yield what a pattern matches, and the name of the group that did."""
    start = 0
    while match := pattern.search(text, start):
        start = max(end_of_match(match), match.start() + 1)
        yield Span(match.start(), start), match.lastgroup

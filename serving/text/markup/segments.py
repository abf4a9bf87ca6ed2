"""Segments of a text with markup: the tokens of each, and the gaps between them.

A gap is all that is not in a segment: spaces, tags around whole sentences and comments, as they are
written, and non-translatable text, as a translation writes it.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from serving.text.markup.model_placeholders import with_model_placeholders
from serving.text.markup.paired_marks import find_pairs
from serving.text.markup.tokens import (
    Role,
    Token,
    join_text,
    join_translations,
    split_at,
    split_passages,
    with_single_spaces,
    with_spans,
)
from serving.text.markup.typography import is_run, is_typographic
from serving.text.sentences import TextLayout
from serving.text.spans import Span

_MAY_HAVE_PAIRS = re.compile(r"[()\"“”„‟«»‹›]|(?<!\w)['‘’]")
# Returns the spans of the segments of a passage, without spaces at their ends.
Cut = Callable[[str], Sequence[Span]]


@dataclass(frozen=True, slots=True)
class MarkedSegment:
    """The tokens of one segment.

    references: how characters of its translation are written, as of `reference_table`.
    is_in_capitals: a model reads it in small letters, and its translation is written in capitals.
    """

    tokens: tuple[Token, ...]
    references: Mapping[int, str | None]
    is_in_capitals: bool = False

    @property
    def text(self) -> str:
        return join_text(self.tokens)

    @property
    def is_plain_text(self) -> bool:
        """Return whether it is nothing but words, whose translation needs no change."""
        is_text = all(
            token.role is Role.TEXT and not is_typographic(token) and not is_run(token)
            for token in self.tokens
        )
        return is_text and not self.is_in_capitals and not self._has_pairs

    @property
    def needs_word_alignment(self) -> bool:
        """Return whether it has more than words, and tags around all of it."""
        start, end = 0, len(self.tokens)
        while (
            start < end
            and self.tokens[start].role is Role.OPEN
            and self.tokens[end - 1].role is Role.CLOSE
        ):
            start, end = start + 1, end - 1
        inner = self.tokens[start:end]
        if any(token.role is not Role.TEXT for token in inner) or self._has_pairs:
            return True
        return any(is_run(token) for token in inner[:-1])

    @property
    def _has_pairs(self) -> bool:
        """Return whether brackets or quotation marks are among its words."""
        text = self.text
        return _MAY_HAVE_PAIRS.search(text) is not None and bool(find_pairs(text).places)


@dataclass(frozen=True, slots=True)
class MarkedLayout:
    """The segments of one text, and the gaps before, between and after them."""

    segments: tuple[MarkedSegment, ...]
    gaps: tuple[str, ...]

    @property
    def plain(self) -> TextLayout:
        return TextLayout(tuple(segment.text for segment in self.segments), self.gaps)


def cut_into_segments(
    tokens: Iterable[Token], cut: Cut, references: Mapping[int, str | None]
) -> MarkedLayout:
    """Return the segments of a text, and what is between them.

    references: as in a `MarkedSegment`.
    """
    segments: list[MarkedSegment] = []
    gaps = [""]
    for passage_tokens in split_passages(tokens):
        passage = [*with_single_spaces(with_model_placeholders(passage_tokens))]
        spans = _whole_spans(passage, cut(join_text(passage)))
        first, *others = _slots(passage, spans)
        gaps[-1] += join_translations(first)
        for number, slot in enumerate(others):
            if number % 2:
                gaps.append(join_translations(slot))
            else:
                segments.append(MarkedSegment(tuple(slot), references))
    return MarkedLayout(tuple(segments), tuple(gaps))


def _whole_spans(tokens: Sequence[Token], spans: Sequence[Span]) -> list[Span]:
    """Return the spans, those joined between which something is that must not be cut."""
    whole: list[Span] = []
    uncut = [span for token, span in with_spans(tokens) if not token.is_divisible]
    starts = [span.start for span in uncut]
    for span in spans:
        at = bisect_right(starts, span.start - 1) - 1
        if whole and at >= 0 and uncut[at].end > span.start:
            last = whole.pop()
            if last.end < span.start or uncut[at].start <= last.start:
                span = Span(last.start, span.end)
            else:  # there is no space: it was cut for its length, which holds before this too
                whole.append(Span(last.start, uncut[at].start))
                span = Span(uncut[at].start, span.end)
        whole.append(span)
    return whole


def _slots(tokens: Sequence[Token], spans: Sequence[Span]) -> list[list[Token]]:
    """Return the tokens of the first gap, the first segment, the second gap, and so on."""
    borders = [border for span in spans for border in span]
    slots: list[list[Token]] = [[] for _ in range(len(borders) + 1)]
    last, marks = 0, []
    for token, span in with_spans(split_at(tokens, borders)):
        if not token.text:
            marks.append(token)
            continue
        slot = bisect_right(borders, span.start)
        _share(marks, slots, last, slot)
        slots[slot].append(token)
        last, marks = slot, []
    _share(marks, slots, last, len(borders))
    return slots


def _share(marks: list[Token], slots: list[list[Token]], last: int, following: int) -> None:
    """Share marks out among the slots of the text before and after them: what ends there goes with
    the segment before, what begins there with the one after, the rest into the gap between.
    """
    if last == following:
        slots[last] += marks
        return
    roles = [mark.role for mark in marks]
    begin = len(marks)
    if following % 2:
        begin = roles.index(Role.OPEN) if Role.OPEN in roles else len(marks)
    end = 0
    if last % 2 and Role.CLOSE in roles[:begin]:
        end = begin - roles[:begin][::-1].index(Role.CLOSE)
    slots[last] += marks[:end]
    gap = last if last % 2 == 0 else last + 1
    slots[gap] += marks[end:begin]
    slots[following] += marks[begin:]


def with_pairs_as_tags(tokens: Sequence[Token], places: Iterable[int]) -> tuple[Token, ...]:
    """Return the tokens, brackets and quotation marks as tags around words.

    places: of the brackets and quotation marks, in what is read.
    """
    text = join_text(tokens)
    chosen = {*places}
    pairs = find_pairs(text)
    opening = {*pairs.closing, *(place for place, opens in pairs.alone.items() if opens)}
    names = {place: text[place] for place in chosen}
    names |= {close: names[start] for start, close in pairs.closing.items() if close in names}
    borders = sorted({border for place in chosen for border in (place, place + 1)})
    tags: list[Token] = []
    for token, span in with_spans(split_at(tokens, borders)):
        if token.role is Role.TEXT and span.start in chosen and token.text:
            role = Role.OPEN if span.start in opening else Role.CLOSE
            token = Token(role, token.raw, token.text, names[span.start])
        tags.append(token)
    return tuple(tags)

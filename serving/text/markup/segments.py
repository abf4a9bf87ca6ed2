"""Cuts a text with marks into segments that a model can take, each with the marks within it.

What is not in a segment is a gap: spaces, tags around whole sentences, comments, as they are
written, and what is kept, as a translation writes it.
"""

import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from serving.text.alignment import Span
from serving.text.markup.enclosing import enclosed, pairs_in
from serving.text.markup.escapes import with_escapes
from serving.text.markup.html_reader import read_html
from serving.text.markup.joining import (
    JoinedLines,
    with_labels_as_breaks,
    with_line_breaks,
    with_whole_words,
)
from serving.text.markup.markdown_reader import LINE_MARK, read_plain
from serving.text.markup.protection import (
    Protection,
    in_small_letters,
    is_in_capitals,
    with_stand_ins,
)
from serving.text.markup.tokens import (
    Markup,
    MarkupKind,
    Role,
    Token,
    divided,
    is_run,
    is_typographic,
    passages,
    placed,
    read,
    translations,
    with_single_spaces,
)
from serving.text.markup.xml_reader import read_xml
from serving.text.sentences import Fits, Splitting, TextLayout, split_text

_MAY_HAVE_PAIRS = re.compile(r"[()\"“”„‟«»‹›]|(?<!\w)['‘’]")

# Says where the segments of a passage lie.
Cut = Callable[[str], Sequence[Span]]


@dataclass(frozen=True, slots=True)
class MarkedSegment:
    """The tokens of one segment; read, they are its text.

    references: how the text writes characters that stand for others in markup, and which it leaves
        out.
    is_in_capitals: it is read in small letters, and its translation written in capitals.
    """

    tokens: tuple[Token, ...]
    references: Mapping[int, str | None]
    is_in_capitals: bool = False

    @property
    def text(self) -> str:
        return read(self.tokens)

    @property
    def is_one_text(self) -> bool:
        """Return whether it is words and nothing else, and its translation is written as it
        comes.
        """
        is_text = all(
            token.role is Role.TEXT and not is_typographic(token) and not is_run(token)
            for token in self.tokens
        )
        return is_text and not self.is_in_capitals and not self._has_pairs

    @property
    def needs_origins(self) -> bool:
        """Return whether it matters which words of a translation came of which of its own: if there
        is more than tags around all of it.
        """
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
        return _MAY_HAVE_PAIRS.search(text) is not None and bool(pairs_in(text).places)


@dataclass(frozen=True, slots=True)
class MarkedLayout:
    """The segments of one text, and the gaps before, between and after them."""

    segments: tuple[MarkedSegment, ...]
    gaps: tuple[str, ...]

    @property
    def plain(self) -> TextLayout:
        return TextLayout(tuple(segment.text for segment in self.segments), self.gaps)


def cut_text(
    tokens: Iterable[Token], cut: Cut, references: Mapping[int, str | None]
) -> MarkedLayout:
    """Return the segments of a text, and what is between them.

    cut: gives the segments of a passage, without spaces at their ends.
    references: as in a `MarkedSegment`.
    """
    segments: list[MarkedSegment] = []
    gaps = [""]
    for found in passages(tokens):
        passage = [*with_single_spaces(with_stand_ins(found))]
        spans = _whole_spans(passage, cut(read(passage)))
        first, *others = _slots(passage, spans)
        gaps[-1] += translations(first)
        for number, slot in enumerate(others):
            if number % 2:
                gaps.append(translations(slot))
            else:
                segments.append(MarkedSegment(tuple(slot), references))
    return MarkedLayout(tuple(segments), tuple(gaps))


def _whole_spans(tokens: Sequence[Token], spans: Sequence[Span]) -> list[Span]:
    """Return the spans, those joined between which something is that must not be cut."""
    whole: list[Span] = []
    uncut = [span for token, span in placed(tokens) if not token.is_divisible]
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
    for token, span in placed(divided(tokens, borders)):
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
    text = read(tokens)
    chosen = {*places}
    pairs = pairs_in(text)
    opening = {*pairs.closing, *(place for place, opens in pairs.alone.items() if opens)}
    names = {place: text[place] for place in chosen}
    names |= {close: names[start] for start, close in pairs.closing.items() if close in names}
    borders = sorted({border for place in chosen for border in (place, place + 1)})
    tags: list[Token] = []
    for token, span in placed(divided(tokens, borders)):
        if token.role is Role.TEXT and span.start in chosen and token.text:
            role = Role.OPEN if span.start in opening else Role.CLOSE
            token = Token(role, token.raw, token.text, names[span.start])
        tags.append(token)
    return tuple(tags)


_LETTER = re.compile(r"[^\W\d_]")
# What this finds nothing in is one line of Latin letters and simple punctuation: no mark, no sign,
# no number and no address.
_MAY_HAVE_MARKS = re.compile(
    r"[^A-Za-zÀ-ÖØ-öø-ɏ ,.!?'’-]| [ '’]|\.\S|-[-'’]|,['’]|'['’]|’['’]|![.!?'’]|\?[.!?'’]"
    rf"|(?<!\w)[xX]+D|-\Z|\A(?:[^A-Za-zÀ-ÖØ-öø-ɏ]|{LINE_MARK})| \Z"
)


@dataclass(frozen=True, slots=True)
class MarkedReader:
    """Reads texts, and cuts them into segments.

    markup: None for plain text.
    protection: what is kept; if that is all that must not change, Markdown's marks are marks.
    fits: as in `split_text`.
    num_tokens: how many tokens the model reads a text as.
    """

    markup: Markup | None
    protection: Protection
    splitting: Splitting
    fits: Fits
    num_tokens: Callable[[str], int] = len

    def layout(self, text: str) -> MarkedLayout:
        """Return the segments of a text. Raises RequestError for XML that is not well-formed."""
        protection = self.protection
        raw = read_tokens(text, self.markup, protection.is_whole, protection.placeholders)
        if self.protection.is_whole:
            raw = with_labels_as_breaks(with_escapes(raw))
        joined = with_line_breaks(raw, self._joins(), self.protection.source)
        tokens = [*with_whole_words(self.protection.with_tagged_spans(joined), self.num_tokens)]
        table = references(tokens, self.markup.kind if self.markup else None)
        layout = cut_text(self.protection.protected(tokens), self._cut, table)
        if not self.protection.is_whole:
            return layout
        return replace(layout, segments=tuple(map(self._in_small_letters, layout.segments)))

    def plain_layout(self, text: str) -> TextLayout | None:
        """Return the layout of a text without marks, as most are; None if it may have some. This
        takes a small part of the time of `layout`, which finds the same segments.
        """
        protection = self.protection
        is_all = protection.is_whole and protection.placeholders is None and self.markup is None
        if not is_all or _MAY_HAVE_MARKS.search(text) or protection.has_names(text):
            return None
        finds_sentences = self.splitting is not Splitting.NONE
        layout = split_text(text, protection.source, self.fits, finds_sentences)
        if any(segment.isupper() or not _LETTER.search(segment) for segment in layout.segments):
            return None
        return layout

    def _in_small_letters(self, segment: MarkedSegment) -> MarkedSegment:
        if not is_in_capitals(segment.tokens):
            return segment
        protection = self.protection
        small = in_small_letters(segment.tokens, protection.source, protection.known_words)
        return replace(segment, tokens=tuple(small), is_in_capitals=True)

    def _joins(self) -> JoinedLines:
        """Return which lines are joined. In HTML line breaks are elements, which `splitting` is not
        about.
        """
        is_html = self.markup is not None and self.markup.kind is MarkupKind.HTML
        if is_html or self.splitting is Splitting.SENTENCES:
            return JoinedLines.WRAPPED
        return JoinedLines.NONE if self.splitting is Splitting.LINES else JoinedLines.ALL

    def _cut(self, passage: str) -> Sequence[Span]:
        """Return where the segments of a passage lie that are translated; what encloses one is
        not part of it.
        """
        finds_sentences = self.splitting is not Splitting.NONE
        layout = split_text(passage, self.protection.source, self.fits, finds_sentences)
        spans: list[Span] = []
        end = 0
        for gap, segment in zip(layout.gaps, layout.segments, strict=False):
            start = end + len(gap)
            end = start + len(segment)
            inner = enclosed(segment) if self.protection.is_whole else Span(0, len(segment))
            if inner == (0, len(segment)):
                spans += [Span(start, end)] * self._is_translated(segment)
            else:  # sentences in quotation marks were not parted
                cut = self._cut(segment[inner.start : inner.end])
                low = start + inner.start
                spans += (Span(low + span.start, low + span.end) for span in cut)
        return spans

    def _is_translated(self, segment: str) -> bool:
        """Return whether it is more than what is kept, numbers and punctuation, which stay."""
        return not self.protection.is_whole or _LETTER.search(segment) is not None


def read_tokens(
    text: str,
    markup: Markup | None,
    is_protected: bool,
    placeholders: re.Pattern[str] | None = None,
) -> Iterator[Token]:
    """Yield the tokens of a text; in plain text Markdown's marks are marks if what must not change
    is protected, except in placeholders. Raises RequestError for XML that is not well-formed.
    """
    if markup is None:
        return read_plain(text, is_protected, True, placeholders)
    if markup.kind is MarkupKind.HTML:
        return read_html(text, markup)
    return read_xml(text, markup, breaks_lines=True)


_NEEDED = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
# XML 1.0 can write none of these, in no way.
_NOT_IN_XML = {*range(0x20), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF} - {0x9, 0xA, 0xD}


def references(tokens: Iterable[Token], kind: MarkupKind | None) -> Mapping[int, str | None]:
    """Return a table for `str.translate`: a character that the text writes by a reference or an
    escape once is always written so.
    """
    found: dict[int, str | None] = {}
    if kind is MarkupKind.XML:
        found.update(dict.fromkeys(_NOT_IN_XML))
    for token in tokens:
        if token.role is Role.TEXT and len(token.text) == 1 and _is_reference(token):
            found.setdefault(ord(token.text), token.raw)
    if kind is None:
        return found
    return {**found, **{own: found.get(own) or name for own, name in _NEEDED.items()}}


def _is_reference(token: Token) -> bool:
    if token.raw.startswith("\\"):
        return True
    is_reference = token.raw.startswith("&") and token.raw.endswith(";")
    return is_reference and html.unescape(token.raw) == token.text

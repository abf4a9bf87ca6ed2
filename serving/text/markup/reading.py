"""Reads a text with marks of any kind: as HTML, as XML, or plain with what is protected in it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from serving.text.alignment import Span
from serving.text.markup.cutting import MarkedLayout, MarkedSegment, cut_text
from serving.text.markup.line_breaks import JoinedLines, with_line_breaks
from serving.text.markup.options import Markup, MarkupKind
from serving.text.markup.readers.html import read_html
from serving.text.markup.readers.plain import read_plain
from serving.text.markup.readers.xml import read_xml
from serving.text.markup.references import references
from serving.text.markup.tokens import Token
from serving.text.markup.whole_words import with_whole_words
from serving.text.protection.capitals import in_small_letters, is_in_capitals
from serving.text.protection.protecting import Protection
from serving.text.splitting import Fits, Splitting, split_text

_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class MarkedReader:
    """Reads texts, and cuts them into segments.

    markup: None for plain text.
    protection: what is kept; if that is all that must not change, Markdown's marks are marks.
    fits: as in `split_text`.
    """

    markup: Markup | None
    protection: Protection
    splitting: Splitting
    fits: Fits

    def layout(self, text: str) -> MarkedLayout:
        """Return the segments of a text. Raises RequestError for XML that is not well-formed."""
        raw = read_tokens(text, self.markup, self.protection.is_whole)
        joined = with_line_breaks(raw, self._joins(), self.protection.source)
        tokens = [*with_whole_words(joined)]
        table = references(tokens, self.markup.kind if self.markup else None)
        layout = cut_text(self.protection.protected(tokens), self._cut, table)
        if not self.protection.is_whole:
            return layout
        return replace(layout, segments=tuple(map(self._in_small_letters, layout.segments)))

    def _in_small_letters(self, segment: MarkedSegment) -> MarkedSegment:
        if not is_in_capitals(segment.tokens):
            return segment
        protection = self.protection
        small = in_small_letters(segment.tokens, protection.source, protection.known_words)
        return replace(segment, tokens=tuple(small), is_in_capitals=True)

    def _joins(self) -> JoinedLines:
        """Say which lines are joined. In HTML line breaks are elements, which `splitting` is not
        about.
        """
        is_html = self.markup is not None and self.markup.kind is MarkupKind.HTML
        if is_html or self.splitting is Splitting.SENTENCES:
            return JoinedLines.WRAPPED
        return JoinedLines.NONE if self.splitting is Splitting.LINES else JoinedLines.ALL

    def _cut(self, passage: str) -> Sequence[Span]:
        finds_sentences = self.splitting is not Splitting.NONE
        layout = split_text(passage, self.protection.source, self.fits, finds_sentences)
        spans, end = [], 0
        for gap, segment in zip(layout.gaps, layout.segments, strict=False):
            start = end + len(gap)
            end = start + len(segment)
            if self._is_translated(segment):
                spans.append(Span(start, end))
        return spans

    def _is_translated(self, segment: str) -> bool:
        """Say if it is more than what is kept, numbers and punctuation, which stay."""
        return not self.protection.is_whole or _LETTER.search(segment) is not None


def read_tokens(text: str, markup: Markup | None, is_protected: bool) -> Iterator[Token]:
    """Yield the tokens of a text; in plain text Markdown's marks are marks if what must not change
    is protected. Raises RequestError for XML that is not well-formed.
    """
    if markup is None:
        return read_plain(text, is_protected, breaks_lines=True)
    if markup.kind is MarkupKind.HTML:
        return read_html(text, markup)
    return read_xml(text, markup, breaks_lines=True)

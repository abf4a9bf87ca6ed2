"""Reads a text with markup, and cuts it into segments that a model can take."""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from serving.text.markup.capitals import is_in_capitals, lowercase_tokens
from serving.text.markup.escapes import read_escapes
from serving.text.markup.html_reader import read_html
from serving.text.markup.item_labels import with_labels_as_breaks
from serving.text.markup.line_breaks import JoinedLines, with_line_breaks
from serving.text.markup.markdown_tokens import LINE_MARK, tokenize_plain_text
from serving.text.markup.paired_marks import find_enclosed
from serving.text.markup.protection import Protection
from serving.text.markup.segments import MarkedLayout, MarkedSegment, cut_into_segments
from serving.text.markup.tokens import Markup, MarkupKind, Role, Token
from serving.text.markup.whole_words import with_whole_words
from serving.text.markup.xml_reader import read_xml
from serving.text.sentences import Fits, Splitting, TextLayout, split_text
from serving.text.spans import Span

_LETTER = re.compile(r"[^\W\d_]")
# A text without a match is one line of Latin letters and simple punctuation: no markup, no sign, no
# number and no address.
_MAY_HAVE_MARKS = re.compile(
    r"[^A-Za-zÀ-ÖØ-öø-ɏ ,.!?'’-]| [ '’]|\.\S|-[-'’]|,['’]|'['’]|’['’]|![.!?'’]|\?[.!?'’]"
    rf"|(?<!\w)[xX]+D|-\Z|\A(?:[^A-Za-zÀ-ÖØ-öø-ɏ]|{LINE_MARK})| \Z"
)
_ALWAYS_ESCAPED = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
# XML 1.0 can write none of these, in no way.
_NOT_IN_XML = {*range(0x20), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF} - {0x9, 0xA, 0xD}


@dataclass(frozen=True, slots=True)
class MarkupSegmenter:
    """Splits texts into segments, each with its tags.

    markup: None for plain text.
    protection: what is not translated; if it protects all, plain text is read as Markdown.
    fits: as in `split_text`.
    num_tokens: how many tokens the model reads a text as.
    """

    markup: Markup | None
    protection: Protection
    splitting: Splitting
    fits: Fits
    num_tokens: Callable[[str], int] = len

    def segment(self, text: str) -> MarkedLayout:
        """Return the segments of a text. Raises RequestError for XML that is not well-formed."""
        protection = self.protection
        raw = tokenize_text(text, self.markup, protection.protects_all, protection.placeholders)
        if self.protection.protects_all:
            raw = with_labels_as_breaks(read_escapes(raw))
        joined = with_line_breaks(raw, self._joined_lines(), self.protection.source)
        tokens = [*with_whole_words(self.protection.with_tagged_spans(joined), self.num_tokens)]
        table = reference_table(tokens, self.markup.kind if self.markup else None)
        layout = cut_into_segments(self.protection.protect(tokens), self._cut, table)
        if not self.protection.protects_all:
            return layout
        return replace(layout, segments=tuple(map(self._lowercase, layout.segments)))

    def segment_plain_text(self, text: str) -> TextLayout | None:
        """Return the segments of a text without marks, as most are; None if it may have some. This
        takes a small part of the time of `segment`, which finds the same segments.
        """
        protection = self.protection
        is_all = protection.protects_all and protection.placeholders is None and self.markup is None
        if not is_all or _MAY_HAVE_MARKS.search(text) or protection.has_names(text):
            return None
        finds_sentences = self.splitting is not Splitting.NONE
        layout = split_text(text, protection.source, self.fits, finds_sentences)
        for segment in layout.segments:
            if segment.isupper() or not _LETTER.search(segment):
                return None
        return layout

    def _lowercase(self, segment: MarkedSegment) -> MarkedSegment:
        if not is_in_capitals(segment.tokens):
            return segment
        protection = self.protection
        small = lowercase_tokens(segment.tokens, protection.source, protection.known_words)
        return replace(segment, tokens=tuple(small), is_in_capitals=True)

    def _joined_lines(self) -> JoinedLines:
        """Return which lines are joined. In HTML line breaks are elements, which `splitting` is not
        about.
        """
        is_html = self.markup is not None and self.markup.kind is MarkupKind.HTML
        if is_html or self.splitting is Splitting.SENTENCES:
            return JoinedLines.WRAPPED
        return JoinedLines.NONE if self.splitting is Splitting.LINES else JoinedLines.ALL

    def _cut(self, passage: str) -> Sequence[Span]:
        """Return the segments of a passage that are translated, without the brackets and quotation
        marks that enclose them.
        """
        finds_sentences = self.splitting is not Splitting.NONE
        layout = split_text(passage, self.protection.source, self.fits, finds_sentences)
        spans: list[Span] = []
        end = 0
        for gap, segment in zip(layout.gaps, layout.segments, strict=False):
            start = end + len(gap)
            end = start + len(segment)
            inner = (
                find_enclosed(segment) if self.protection.protects_all else Span(0, len(segment))
            )
            if inner == (0, len(segment)):
                spans += [Span(start, end)] * self._is_translated(segment)
            else:  # sentencex does not split within quotation marks
                cut = self._cut(segment[inner.start : inner.end])
                low = start + inner.start
                spans += (Span(low + span.start, low + span.end) for span in cut)
        return spans

    def _is_translated(self, segment: str) -> bool:
        """Return whether it is more than non-translatable text, numbers and punctuation."""
        return not self.protection.protects_all or _LETTER.search(segment) is not None


def tokenize_text(
    text: str,
    markup: Markup | None,
    is_protected: bool,
    placeholders: re.Pattern[str] | None = None,
) -> Iterator[Token]:
    """Yield the tokens of a text. Raises RequestError for XML that is not well-formed.

    is_protected: plain text is read as Markdown, but for the placeholders.
    """
    if markup is None:
        return tokenize_plain_text(text, is_protected, True, placeholders)
    if markup.kind is MarkupKind.HTML:
        return read_html(text, markup)
    return read_xml(text, markup, breaks_lines=True)


def reference_table(tokens: Iterable[Token], kind: MarkupKind | None) -> Mapping[int, str | None]:
    """Return a table for `str.translate` of a translation: a character that the text once writes by
    a reference or an escape is written so everywhere, and None leaves one out.
    """
    table: dict[int, str | None] = {}
    if kind is MarkupKind.XML:
        table.update(dict.fromkeys(_NOT_IN_XML))
    for token in tokens:
        if token.role is Role.TEXT and len(token.text) == 1 and _is_reference(token):
            table.setdefault(ord(token.text), token.raw)
    if kind is None:
        return table
    return {**table, **{code: table.get(code) or name for code, name in _ALWAYS_ESCAPED.items()}}


def _is_reference(token: Token) -> bool:
    if token.raw.startswith("\\"):
        return True
    is_reference = token.raw.startswith("&") and token.raw.endswith(";")
    return is_reference and html.unescape(token.raw) == token.text

"""Split short texts and messages of programs into words and marks: tags, placeholders, layout."""

import re
from collections.abc import Iterable, Iterator, Sequence
from html import unescape

from serving.documents.spans import InlineMark, MarkRole
from serving.text.icu_messages import find_arguments
from serving.text.markup.placeholders import (
    TEMPLATE_BORDER,
    TEMPLATE_TAG,
    gettext_formats,
    message_pattern,
)

_TAG = r"</?[A-Za-z][^<>]*>"
_ESCAPE = r"\{\\[^{}]*\}"  # {\an8}, of subtitles
_ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#\d{1,7}|#[xX][\da-fA-F]{1,6});"
CODE = "\ufdd0"  # a noncharacter, so in no text
_KNOWN_CODE, _COUNT_OR_CODE = re.compile(f"({CODE})"), re.compile(f"([#{CODE}])")
# Layout by programs: lines, columns, options before their descriptions, and control characters, of
# which XML has none but \n and \t. The lookbehinds try a run of white space only once.
_LAYOUT = re.compile(
    r"(?P<line>(?<![ \t])[ \t]*[\n\r\v\f]\s*)"
    r"|(?P<control>[\x00-\x08\x0e-\x1f\x7f]+)"
    r"|(?P<column>(?<![ \t])(?:[ ]{3,}|(?<![^\W\d_])[ ]{2}|\t)[ \t]*)"
    r"|(?P<option>(?<!\S)--?[A-Za-z][\w-]*(?:[ =][A-Z]+)?(?:(?P<gap>[ ]{2,})|(?=,|\n|\Z)))"
)


class MessageSyntax:
    """The tags, entities and placeholders of messages that have these flags of gettext."""

    def __init__(self, flags: Iterable[str] = ()) -> None:
        formats = gettext_formats(flags)
        self.literals = {
            raw: character for syntax in formats for character, raw in syntax.literals.items()
        }
        escape = "|".join(map(re.escape, self.literals)) or "%%"
        line_break = "|".join(syntax.line_break for syntax in formats if syntax.line_break)
        self.pattern = re.compile(
            rf"(?P<code>{_ESCAPE})|(?P<border>{TEMPLATE_BORDER})|(?P<tag>{TEMPLATE_TAG}|{_TAG})|(?P<entity>{_ENTITY})"
            rf"|(?P<line_break>{line_break or '(?!)'})"
            rf"|(?P<word>{message_pattern(frozenset(flags))})"
            rf"|(?P<escape>{escape})"
        )

    def mark(self, match: re.Match[str]) -> InlineMark | str:
        raw = match.group()
        if match["code"]:
            return InlineMark(raw)
        if match["border"]:
            return InlineMark(raw, MarkRole.SENTENCE_END)
        if match["line_break"]:
            return InlineMark(raw, MarkRole.LINE_BREAK)
        if match["tag"]:
            return tag_mark(raw)
        if match["entity"]:
            return _entity(raw)
        if match["escape"]:
            return InlineMark(raw, character=self.literals.get(raw, ""))
        return word_mark(raw)


IN_TEXT = MessageSyntax()


def split_at_marks(text: str, messages: MessageSyntax = IN_TEXT) -> Iterator[str | InlineMark]:
    """Yield the words and the marks of a text."""
    end = 0
    for match in messages.pattern.finditer(text):
        yield text[end : match.start()]
        yield messages.mark(match)
        end = match.end()
    yield text[end:]


def word_mark(raw: str, visible_text: str = "") -> InlineMark:
    """Return a mark that is a word of the sentence, as a placeholder is."""
    return InlineMark(raw, visible_text=visible_text or raw)


def is_placeholder(text: str) -> bool:
    match = IN_TEXT.pattern.fullmatch(text)
    return match is not None and match["word"] is not None


def _entity(raw: str) -> InlineMark | str:
    """Return the mark of an entity; its character is part of the text unless it is a control
    character.
    """
    character = unescape(raw)
    if character == raw:
        return raw
    is_of_text = character in "&<>\"'" or character >= "\xa0"
    return InlineMark(raw, character=character if is_of_text else "")


def split_message(
    text: str, messages: MessageSyntax = IN_TEXT, codes: Iterable[InlineMark] = ()
) -> Iterator[str | InlineMark]:
    """Yield the words and the marks of a program's message, also of its lines and ICU branches.

    codes: known marks; the text has a `CODE` in the place of each.
    """
    part: list[str | InlineMark] = []
    for piece in _message_pieces(text, messages, iter(codes)):
        part.append(piece)
        if isinstance(piece, InlineMark) and piece.role in (
            MarkRole.SENTENCE_END,
            MarkRole.LINE_BREAK,
        ):
            yield from _mark_unless_words(part)
            part = []
    yield from _mark_unless_words(part)


def _mark_unless_words(part: Sequence[str | InlineMark]) -> Iterator[str | InlineMark]:
    """Yield the pieces of a sentence. Without a letter in it its text becomes marks."""
    if any(isinstance(piece, str) and any(map(str.isalpha, piece)) for piece in part):
        yield from part
        return
    for piece in part:
        yield (
            InlineMark(piece, MarkRole.SENTENCE_END) if isinstance(piece, str) and piece else piece
        )


def _message_pieces(
    text: str, messages: MessageSyntax, waiting: Iterator[InlineMark], has_number: bool = False
) -> Iterator[str | InlineMark]:
    """Yield pieces as `split_message`. has_number: "#" stands for a number."""
    start = 0
    for argument in find_arguments(text):
        yield from _text_pieces(text[start : argument.span.start], messages, waiting, has_number)
        start = argument.span.start
        for branch in argument.branches:
            yield InlineMark(text[start : branch.start], MarkRole.SENTENCE_END)
            inner, counts = text[branch.start : branch.end], has_number or argument.has_number
            yield from _message_pieces(inner, messages, waiting, counts)
            start = branch.end
        yield InlineMark(text[start : argument.span.end], MarkRole.SENTENCE_END)
        start = argument.span.end
    yield from _text_pieces(text[start:], messages, waiting, has_number)


def _text_pieces(
    text: str, messages: MessageSyntax, waiting: Iterator[InlineMark], has_number: bool
) -> Iterator[str | InlineMark]:
    for part in (_COUNT_OR_CODE if has_number else _KNOWN_CODE).split(text):
        if part == CODE:
            yield next(waiting, InlineMark(part))
        elif part == "#" and has_number:
            yield word_mark(part)
        else:
            yield from _split_at_layout(part, messages)


def _split_at_layout(text: str, messages: MessageSyntax) -> Iterator[str | InlineMark]:
    for piece in split_at_marks(text, messages):
        if isinstance(piece, InlineMark):
            yield piece
            continue
        end = 0
        for match in _LAYOUT.finditer(piece):
            yield piece[end : match.start()]
            yield InlineMark(match.group(), _role_of_layout(match))
            end = match.end()
        yield piece[end:]


def _role_of_layout(match: re.Match[str]) -> MarkRole:
    if match["control"] or (match["option"] and not match["gap"]):
        return MarkRole.STANDS
    return MarkRole.LINE_BREAK if match.group().count("\n") == 1 else MarkRole.SENTENCE_END


def tag_mark(raw: str) -> InlineMark:
    """Return the mark of a tag; comments and the like are single marks."""
    if not raw.lstrip("</")[:1].isalpha() or raw.endswith("/>"):
        return InlineMark(raw)
    role = MarkRole.CLOSES if raw.startswith("</") else MarkRole.OPENS
    name = re.split(r"[\s>.]", raw.lstrip("</"), maxsplit=1)[0]  # <c.red>, of WebVTT, ends in </c>
    return InlineMark(raw, role, name.lower())

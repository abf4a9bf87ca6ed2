"""Reads and writes .md: paragraphs, headings, lists and tables. Code, front matter, links' targets
and HTML stay; a paragraph's lines become one, but where it breaks lines itself.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from serving.documents.document import Document
from serving.documents.formats.plain import PlainDocument
from serving.documents.parts.encoding import read_text
from serving.documents.parts.spans import Mark, Role, Span
from serving.documents.parts.tags import tag_mark

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.M)
_TARGET = (
    r"""\(\s*(?:<[^<>\n]*>|(?:[^\s()\\]|\\.|\([^\s()]*\))*)"""
    r"""(?:\s+(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\)))?\s*\)"""
)
_LINK_END = re.compile(rf"\](?:{_TARGET}|\[[^\[\]]*\])?")
_IMAGE = re.compile(rf"!\[(?:[^\[\]]|\[[^\[\]]*\])*{_LINK_END.pattern}")
_AUTOLINK = re.compile(r"<[^<>\s]+>")
_HARD_BREAK = re.compile(r"(?: {2,}|\\)\n[ \t]*")
_SOFT_BREAK = re.compile(r"[ \t]*\n[ \t]*")
_FOOTNOTE = re.compile(r"(\[\^[^\]\s]+\]:?)")

_LINE_END = re.compile(r"\r\n?|\n")  # the parser's


class _Unread(Exception):
    """Says that the text is not as it was parsed; such a block stays as it is."""


def _parser() -> MarkdownIt:
    """Make a parser that leaves escapes and entities apart from text."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")


def read(path: Path) -> Document:
    """Raises RequestError."""
    file = read_text(path).with_line_feeds()
    return PlainDocument(file, _spans(file.text))


def _spans(text: str) -> Iterator[Span]:
    front = _FRONT_MATTER.match(text)
    begin = front.end() if front else 0
    lines = [begin, *(found.end() for found in _LINE_END.finditer(text[begin:]))]
    lines[1:] = [begin + line for line in lines[1:]]
    place = begin
    for previous, token in pairwise(_parser().parse(text[begin:])):
        if token.type != "inline" or not token.map or not token.content:
            continue
        place = max(place, lines[token.map[0]])
        found = _stretch(token.content).search(text, place)
        if found is None:
            continue
        with suppress(_Unread):
            place = found.end()
            written = _in_a_cell if previous.tag in ("th", "td") else str
            yield Span(found.start(), place, [*_pieces(token, found.group())], written)


def _stretch(content: str) -> "re.Pattern[str]":
    """Match a block's content in the file, where lines have the marks of quotes before them."""
    lines = [re.escape(line.lstrip()).replace(r"\|", r"\\?\|") for line in content.split("\n")]
    return re.compile(rf"[ \t]*(?:{_LINE_END.pattern})[ \t>]*".join(lines))


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _pieces(block: Token, raw: str) -> list[str | Mark]:
    """Read the tokens of a block as pieces of its raw text. Raises _Unread."""
    continued = re.search(r"\n[ \t>]*", raw)
    reader = _Reader(block.content, continued.group() if continued else "\n")
    tokens = iter(block.children or ())
    for token in tokens:
        reader.read(token, tokens)
    return reader.pieces


class _Reader:
    """Goes through a block's text, token by token. continued: what new lines begin with."""

    def __init__(self, text: str, continued: str) -> None:
        self._text, self._continued = text, continued
        self._place = 0
        self.pieces: list[str | Mark] = []

    def read(self, token: Token, following: Iterator[Token]) -> None:
        match token.type:
            case "text":
                self._read_text(token.content)
            case "text_special":
                self._take(re.escape(token.markup))
            case "softbreak":
                self._match(_SOFT_BREAK)
                self.pieces.append(" ")
            case "hardbreak":
                raw = self._match(_HARD_BREAK).partition("\n")[0]
                self.pieces.append(Mark(raw + self._continued, Role.LINE_BREAK))
            case "code_inline":
                self._take(rf"({token.markup})(?!`).*?(?<!`)\1(?!`)")
            case "html_inline":
                self._match(re.compile(re.escape(token.content)))
                self.pieces.append(tag_mark(token.content))
            case "image":
                self._take(_IMAGE.pattern)
            case "link_open" if token.markup == "autolink":
                self._take(_AUTOLINK.pattern)
                while next(following).type != "link_close":
                    pass
            case "link_open":
                self._take(r"\[", Role.OPENS, "link")
            case "link_close":
                self._take(_LINK_END.pattern, Role.CLOSES, "link")
            case "em_open" | "strong_open" | "s_open":
                self._take(re.escape(token.markup), Role.OPENS, token.tag)
            case "em_close" | "strong_close" | "s_close":
                self._take(re.escape(token.markup), Role.CLOSES, token.tag)
            case _:
                raise _Unread

    def _read_text(self, text: str) -> None:
        raw = self._match(re.compile(re.escape(text)))
        parts = _FOOTNOTE.split(raw)
        self.pieces += [Mark(p) if number % 2 else p for number, p in enumerate(parts)]

    def _take(self, pattern: str, role: Role = Role.STANDS, name: str = "") -> None:
        self.pieces.append(Mark(self._match(re.compile(pattern, re.DOTALL)), role, name))

    def _match(self, pattern: "re.Pattern[str]") -> str:
        found = pattern.match(self._text, self._place)
        if found is None:
            raise _Unread
        self._place = found.end()
        return found.group()

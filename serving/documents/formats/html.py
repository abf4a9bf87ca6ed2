"""Reads and writes .html: text between blocks is translated, all else stays to the character.

HTML is taken as leniently as browsers take it: nothing needs to be closed. Attributes stay.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

from serving.documents.document import Document
from serving.documents.formats.plain import PlainDocument
from serving.documents.parts.encoding import read_text
from serving.documents.parts.spans import Mark, Role, Span


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Elements within a text; all others part texts.
_INLINE = _names(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark q"
    " rp rt ruby s samp small span strike strong sub sup svg time tt u var wbr"
)
_VOID = _names("area base br col embed hr img input link meta source track wbr")
# Elements whose content is no language.
_LEFT_ALONE = _names("code kbd math object pre samp script select style svg template textarea var")
_LINE_ENDS = re.compile(r"(?<![ \t])[ \t]*\r?\n\s*")  # tried once a run of spaces


@dataclass(frozen=True)
class _Token:
    """Holds a piece of a page. name: of a tag. keeps: its element asks to be left alone."""

    kind: str  # start, end, text or other
    start: int
    name: str = ""
    keeps: bool = False


class _Tokens(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self.found: list[_Token] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        keeps = said.get("translate") == "no" or "notranslate" in (said.get("class") or "").split()
        self._add("start", tag, keeps or tag in _LEFT_ALONE)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start" if tag in _VOID else "other", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_entityref(self, name: str) -> None:
        self._add("text")

    def handle_charref(self, name: str) -> None:
        self._add("text")

    def handle_comment(self, data: str) -> None:
        self._add("other")

    def handle_decl(self, decl: str) -> None:
        self._add("other", "!")

    def unknown_decl(self, data: str) -> None:
        self._add("other")

    def handle_pi(self, data: str) -> None:
        self._add("other")

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """Take `<![` for the comment that browsers take it for; the parser fails on most."""
        return self.parse_bogus_comment(i, report)

    def _add(self, kind: str, name: str = "", keeps: bool = False) -> None:
        line, column = self.getpos()
        self.found.append(_Token(kind, self._lines[line - 1] + column, name, keeps))


@dataclass
class _Open:
    """Holds the stretch that is being read: its pieces, and where each is in the page."""

    pieces: list[str | Mark] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def add(self, piece: str | Mark, start: int, end: int) -> None:
        if not self.pieces:
            self.start = start
        self.pieces.append(piece)
        self.end = end


def read(path: Path) -> Document:
    """Raises RequestError."""
    file = read_text(path)
    return PlainDocument(file, _spans(file.text, partial(_written, file.encoding)))


def _spans(text: str, written: "partial[str]") -> Iterator[Span]:
    tokens = _Tokens(text).found
    ends = [*(token.start for token in tokens), len(text)][1:]
    held = _Open()
    alone: list[_Token] = []  # the element that is left alone, and those of its name in it
    for token, end in zip(tokens, ends, strict=True):
        if alone or (token.keeps and token.name not in _VOID):
            whole = _followed(token, alone)
            if whole is None:
                continue
            token = whole
        piece = _piece(token, text[token.start : end])
        if piece is not None:
            held.add(piece, token.start, end)
        elif held.pieces:
            yield _span(held, text, written)
            held = _Open()
    if held.pieces:
        yield _span(held, text, written)


def _followed(token: _Token, alone: list[_Token]) -> _Token | None:
    """Follow an element that is left alone; at its end return it as one token."""
    if not alone or (token.kind == "start" and token.name == alone[0].name):
        alone.append(token)
    elif token.kind == "end" and token.name == alone[0].name:
        first = alone[0]
        alone.pop()
        if not alone:
            return _Token("other", first.start, first.name)
    return None


def _piece(token: _Token, raw: str) -> str | Mark | None:
    """Return what a token is within a text; None if it parts texts."""
    if token.kind == "text":
        return raw
    if token.name == "br":
        return Mark(raw, Role.LINE_BREAK)
    if token.name and token.name not in _INLINE:
        return None
    if token.kind == "other" or token.name in _VOID:
        return Mark(raw)
    return Mark(raw, Role.OPENS if token.kind == "start" else Role.CLOSES, token.name)


def _span(held: _Open, text: str, written: "partial[str]") -> Span:
    """Make a span without the white space around it, which is how the page is laid out."""
    pieces, start, end = held.pieces, held.start, held.end
    if isinstance(first := pieces[0], str):
        start += len(first) - len(first.lstrip())
        pieces[0] = first.lstrip()
    if isinstance(last := pieces[-1], str):
        end -= len(last) - len(last.rstrip())
        pieces[-1] = last.rstrip()
    meant = [unescape(_LINE_ENDS.sub(" ", p)) if isinstance(p, str) else p for p in pieces]
    return Span(start, max(start, end), meant, written)


def _written(encoding: str, text: str) -> str:
    """Write a text as HTML, with references for what the page's encoding does not hold."""
    return escape(text, quote=False).encode(encoding, "xmlcharrefreplace").decode(encoding)

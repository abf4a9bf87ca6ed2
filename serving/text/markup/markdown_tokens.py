"""Reads plain text with Markdown's marks, and keeps how everything is written."""

import re
from collections.abc import Iterator

from serving.text.markup.tokens import Role, Token, text_tokens
from serving.text.spans import Span

# Headings, quotes, numbers and letters of lists, bullets, arrows and dashes, before a word.
_LIST_MARK = (
    r"#{1,6}|>+|[-*+•◦▪▫■□●○‣⁃∙·»→➜➤►▶✓✔✗✘–—]|[-=]>|\(?(?:\d{1,3}|[A-Za-z]|[ivx]{1,5})\)"
    r"|(?:\d{1,3}|[a-z]|[ivx]{1,5})\.|\d{1,2}(?:\.\d{1,2}){1,4}\.?(?=[ \t]+[^\W\da-z])"
)
LINE_MARK = rf"[ \t]*(?:{_LIST_MARK})[ \t]+(?:\[[ xX]\][ \t]+)?|[ \t]*\[[ xX\d]{{1,3}}\][ \t]+"
_RULE = r"[ \t]*(?:[-*_=|:][ \t]*){3,}"
_BLOCK_MARK = re.compile(
    rf"^(?:[ \t]*(?P<mark>```++|~~~++)[^\n]*\n|{_RULE}$|{LINE_MARK}(?=\S))", re.MULTILINE
)
_FENCE_END = re.compile(r"^[ \t]*(```++|~~~++)[ \t]*$", re.MULTILINE)
# With a role, or as a link, of reStructuredText: :ref:`x`, `x`_.
_CODE = re.compile(
    r"(?:(?<![\w:]):[a-z][\w:.+-]{0,40}:)?(?<!`)(`++)(?:(?=\s).+?|.+?(?<!\s))(?<!`)\1(?!`)"
    r"(?:__?(?!\w))?"
)
_LINK = (
    r"(?P<link>!?\[)(?P<label>[^\[\]\n]+)(?P<target>\](?:\([^()\s]*(?:\s\"[^\"\n]*\")?\)|\[\w*\]))"
)
_EMPHASIS = (
    r"(?<![\w\\*])(?P<star>\*{1,3})(?=[^\s*])(?=[^*\n]*\w)(?P<starred>[^*\n]*[^\s*\\])(?P=star)(?![\w*])"
    r"|(?<![\w\\])(?P<bar>_{1,2}|~~)(?=[^\s_~])(?P<barred>[^_~\n]*[^\s_~\\])(?P=bar)(?!\w)"
)
_TAG = re.compile(r"<(?P<slash>/?)(?P<name>[A-Za-z][\w.:-]*)(?:\s[^<>]*)?>")
_PAIR = re.compile(f"{_LINK}|{_EMPHASIS}")


def tokenize_plain_text(
    text: str,
    reads_markdown: bool,
    breaks_lines: bool,
    placeholders: re.Pattern[str] | None = None,
) -> Iterator[Token]:
    """Yield the tokens of a text. placeholders: within them nothing is a mark of Markdown."""
    if not reads_markdown:
        yield from text_tokens(text, False, breaks_lines)
        return
    yield from _MarkdownTokenizer(text, breaks_lines, placeholders).tokens()


def _find_block_marks(text: str) -> Iterator[Span]:
    """Yield the marks that part blocks: of lists, headings and rules, and fenced code. A fence that
    is never closed is none.

    All ends of fences are found at once: to look for each would take the square of the text's
    length.
    """
    ends: dict[str, list[Span]] = {}
    for end in reversed([*_FENCE_END.finditer(text)]):
        ends.setdefault(end[1], []).append(Span(*end.span()))
    place = 0
    while match := _BLOCK_MARK.search(text, place):
        place = match.end()
        if (mark := match["mark"]) is not None:
            waiting = ends.get(mark, [])
            while waiting and waiting[-1].start < place:
                waiting.pop()
            if not waiting:
                continue
            place = waiting[-1].end
        yield Span(match.start(), place)


class _MarkdownTokenizer:
    """Splits a text at the marks of its blocks, what is left at code, then at placeholders, at
    emphasis and links, and at tags: each may hold what the earlier ones would be taken for.
    """

    def __init__(self, text: str, breaks_lines: bool, placeholders: re.Pattern[str] | None) -> None:
        self._text = text
        tags = {(bool(match["slash"]), match["name"]) for match in _TAG.finditer(text)}
        self._paired = {name for _, name in tags if {(True, name), (False, name)} <= tags}
        self._breaks_lines = breaks_lines
        self._placeholders = placeholders

    def tokens(self) -> Iterator[Token]:
        start = 0
        for span in _find_block_marks(self._text):
            yield from self._split_at_code(self._text[start : span.start])
            yield Token(Role.BREAK, self._text[span.start : span.end])
            start = span.end
        yield from self._split_at_code(self._text[start:])

    def _split_at_code(self, text: str) -> Iterator[Token]:
        start = 0
        for match in _CODE.finditer(text):
            yield from self._split_at_placeholders(text[start : match.start()])
            yield Token(Role.NON_TRANSLATABLE, match.group(), match.group())
            start = match.end()
        yield from self._split_at_placeholders(text[start:])

    def _split_at_placeholders(self, text: str) -> Iterator[Token]:
        start = 0
        for match in self._placeholders.finditer(text) if self._placeholders else ():
            if not match.group().startswith("<"):  # a tag is one of a pair
                yield from self._emphasis_and_links(text[start : match.start()])
                yield from text_tokens(match.group(), False, self._breaks_lines)
                start = match.end()
        yield from self._emphasis_and_links(text[start:])

    def _emphasis_and_links(self, text: str) -> Iterator[Token]:
        """Yield the tokens of text with emphasis and links, one in the other."""
        start = 0
        for match in _PAIR.finditer(text):
            yield from self._tags(text[start : match.start()])
            if match["link"]:
                before, inside, after = match["link"], match["label"], match["target"]
            else:
                before = after = match["star"] or match["bar"]
                inside = match["starred"] or match["barred"]
            yield Token(Role.OPEN, before, name=after)
            yield from self._emphasis_and_links(inside)
            yield Token(Role.CLOSE, after, name=after)
            start = match.end()
        yield from self._tags(text[start:])

    def _tags(self, text: str) -> Iterator[Token]:
        """Yield the tokens of text with tags: pairs and empty ones."""
        start = 0
        for match in _TAG.finditer(text):
            tag = self._tag(match)
            if tag is None:
                continue
            yield from text_tokens(text[start : match.start()], False, self._breaks_lines)
            yield tag
            start = match.end()
        yield from text_tokens(text[start:], False, self._breaks_lines)

    def _tag(self, match: re.Match[str]) -> Token | None:
        """Return the token of a tag; None for one that is no end of a pair."""
        raw, name = match.group(), match["name"]
        if raw.endswith("/>"):
            return Token(Role.POINT, raw)
        if name not in self._paired:
            return None
        return Token(Role.CLOSE if match["slash"] else Role.OPEN, raw, name=name)

"""A text with marks in it as tokens: what is read, what is kept, tags and breaks.

Joined, what the tokens are written as is the text itself, to the character.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from itertools import pairwise

from serving.text.spans import Span

_SPACES = r" \t\n\r\f\v\x1c-\x1e\x85\u2028\u2029"  # not those that do not break
_LINE_BREAK = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
_PLAIN_OR_SPACE = re.compile(rf"[{_SPACES}]+|[^{_SPACES}]+(?: [^{_SPACES}]+)*")
_ENTITY = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z][\w.]*);?")
LINE_BREAK_TAG = "br"


class Role(Enum):
    """Describes what becomes of a token.

    TEXT: is translated.
    NUMBER: is translated; should it come out as another one, it is written as its language has it.
    NON_TRANSLATABLE: stands in the translation as it is, where its words would stand.
    OPEN, CLOSE: a tag around words.
    POINT: a mark between words.
    LINE_BREAK: ends a line within a sentence; a model reads a space.
    BREAK: parts sentences; what is before and after it knows nothing of the other.
    """

    TEXT = auto()
    NUMBER = auto()
    NON_TRANSLATABLE = auto()
    OPEN = auto()
    CLOSE = auto()
    POINT = auto()
    LINE_BREAK = auto()
    BREAK = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a text with marks.

    raw: how it is written there.
    text: what a model reads in its place; empty for tags and breaks.
    name: by which a closing tag finds the one that it closes, and a point at the end of a range the
        one at its start; of a number, how the translation's
        language writes it; so too of what is kept, where that is another way.
    """

    role: Role
    raw: str
    text: str = ""
    name: str = ""

    @property
    def is_divisible(self) -> bool:
        """Return whether each character of its text is written as it is read."""
        return self.role is Role.TEXT and self.raw == self.text and not self.name

    @property
    def translation(self) -> str:
        """Return how a translation writes it, if no model does."""
        return self.name if self.role is Role.NON_TRANSLATABLE and self.name else self.raw


def range_name(kind: str, key: str) -> str:
    """Return the name of the points at both ends of a range."""
    return f"{kind} {key}"


def is_range_name(name: str) -> bool:
    return " " in name


def text_tokens(raw: str, has_entities: bool, breaks_lines: bool) -> Iterator[Token]:
    """Yield the tokens of text without tags. Of several spaces in a row a model reads one.

    has_entities: `&amp;` is read as `&`.
    breaks_lines: a line's end is a line break; else a space.
    """
    start = 0
    if has_entities:
        for match in _ENTITY.finditer(raw):
            yield from _plain_tokens(raw[start : match.start()], breaks_lines)
            yield Token(Role.TEXT, match.group(), html.unescape(match.group()))
            start = match.end()
    yield from _plain_tokens(raw[start:], breaks_lines)


def _plain_tokens(raw: str, breaks_lines: bool) -> Iterator[Token]:
    for match in _PLAIN_OR_SPACE.finditer(raw):
        part = match.group()
        if not part.isspace():
            yield Token(Role.TEXT, part, part)
        elif breaks_lines and _LINE_BREAK.search(part):
            yield Token(Role.LINE_BREAK, part, " ")
        else:
            yield Token(Role.TEXT, part, " ")


def with_single_spaces(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens of a passage so that a model reads no space after a space, whatever tags are
    between.
    """
    after_space = True
    for token in tokens:
        if after_space and token.text == " ":
            token = Token(token.role, token.raw)
        elif after_space and token.is_divisible and token.text.startswith(" "):
            yield Token(Role.TEXT, " ")
            token = Token(Role.TEXT, token.raw[1:], token.text[1:])
        if token.text:
            after_space = token.text[-1] == " "
        yield token


def split_passages(tokens: Iterable[Token]) -> Iterator[list[Token]]:
    """Yield what stands between breaks; each break alone."""
    passage: list[Token] = []
    for token in tokens:
        if token.role is Role.BREAK:
            yield passage
            yield [token]
            passage = []
        else:
            passage.append(token)
    yield passage


def with_spans(tokens: Iterable[Token]) -> Iterator[tuple[Token, Span]]:
    """Yield each token with its place in what is read."""
    start = 0
    for token in tokens:
        yield token, Span(start, start + len(token.text))
        start += len(token.text)


def split_at(tokens: Iterable[Token], borders: Sequence[int]) -> Iterator[Token]:
    """Yield the tokens, text cut at borders in what is read, which are in order."""
    for token, span in with_spans(tokens):
        if not (token.is_divisible and token.text):
            yield token
            continue
        low, high = bisect_right(borders, span.start), bisect_left(borders, span.end)
        for start, end in pairwise((span.start, *borders[low:high], span.end)):
            part = token.text[start - span.start : end - span.start]
            if part:
                yield Token(Role.TEXT, part, part)


def join_text(tokens: Iterable[Token]) -> str:
    return "".join(token.text for token in tokens)


def join_raw(tokens: Iterable[Token]) -> str:
    return "".join(token.raw for token in tokens)


def join_translations(tokens: Iterable[Token]) -> str:
    return "".join(token.translation for token in tokens)


class MarkupKind(StrEnum):
    HTML = "html"
    XML = "xml"


@dataclass(frozen=True, slots=True)
class Markup:
    """Describes the markup of a job's texts.

    splitting_tags: names of elements whose borders part sentences.
    non_splitting_tags: names of elements whose borders never do.
    ignore_tags: names of elements that stay as they are.
    outline_detection: in XML, elements that hold text between elements only part it, those that
        stand within a run of text do not; without it only `splitting_tags` do.
    """

    kind: MarkupKind
    splitting_tags: frozenset[str] = frozenset()
    non_splitting_tags: frozenset[str] = frozenset()
    ignore_tags: frozenset[str] = frozenset()
    outline_detection: bool = True

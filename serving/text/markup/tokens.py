"""A text with markup as tokens: text, non-translatable text, tags and breaks.

The `raw` of all tokens, joined, is the text itself, to the character. Also the markup that a job's
texts have.
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
    """What becomes of a token in the translation.

    TEXT: it is translated.
    NUMBER: it is translated; if another number comes out, it is written as the target language
        writes it.
    NON_TRANSLATABLE: it stands there as it is, where the translation of words would stand.
    OPEN, CLOSE: a tag around words.
    POINT: an empty tag or a sign between words.
    LINE_BREAK: it ends a line within a sentence; a model reads a space.
    BREAK: it separates sentences, which are translated independently.
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
    """A piece of a text with markup.

    raw: how it is written in the text.
    text: what a model reads in its place; empty for tags and breaks.
    name: of a tag, by which a closing tag finds its opening tag; of a point, by which the end of a
        range finds its start; of a run of marks, a number or non-translatable text, how the target
        language writes it, if that is another way.
    """

    role: Role
    raw: str
    text: str = ""
    name: str = ""

    @property
    def is_divisible(self) -> bool:
        """Return whether each character is written as a model reads it, so that it can be split."""
        return self.role is Role.TEXT and self.raw == self.text and not self.name

    @property
    def translation(self) -> str:
        """Return how a translation writes what no model translates."""
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
    """Yield the tokens between breaks, and each break alone."""
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
    """Yield each token with its span in the text that a model reads."""
    start = 0
    for token in tokens:
        yield token, Span(start, start + len(token.text))
        start += len(token.text)


def split_at(tokens: Iterable[Token], borders: Sequence[int]) -> Iterator[Token]:
    """Yield the tokens, those of text split at borders.

    borders: places in the text that a model reads, in order.
    """
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
    """The markup of a job's texts.

    splitting_tags: names of elements at whose borders sentences end.
    non_splitting_tags: names of elements at whose borders they never do.
    ignore_tags: names of elements that are not translated.
    outline_detection: in XML, elements that hold text between elements only part it, those that
        stand within a run of text do not; without it only `splitting_tags` do.
    """

    kind: MarkupKind
    splitting_tags: frozenset[str] = frozenset()
    non_splitting_tags: frozenset[str] = frozenset()
    ignore_tags: frozenset[str] = frozenset()
    outline_detection: bool = True

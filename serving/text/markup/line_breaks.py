"""Decides which line breaks are within sentences, and which separate them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import groupby

from serving.text.markup.tokens import Role, Token, join_raw
from serving.text.wrapped_lines import wrapped_breaks

_LINE_END = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]|\\r\\{1,2}n|\\\w")
# What no space follows: a character of scripts that have none, a hyphen within a word.
_BEFORE_NO_SPACE = re.compile(
    r"(?:[\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF\u3040-\u30FF\u3400-\u9FFF\u00AD]|\w[-‐])$"
)


class JoinedLines(Enum):
    """Which lines are translated as one.

    WRAPPED: those that a text was wrapped into.
    """

    NONE = auto()
    WRAPPED = auto()
    ALL = auto()


def with_line_breaks(
    tokens: Iterable[Token], joined: JoinedLines, language: str
) -> Iterator[Token]:
    """Yield the tokens; line breaks between lines that are not joined separate sentences.

    language: of the text, in two letters.
    """
    tokens = [*_merge_line_breaks(tokens)]
    joins = iter(_joins(tokens, joined, language))
    last = ""
    for token in tokens:
        if token.role is Role.LINE_BREAK and not next(joins):
            token = Token(Role.BREAK, token.raw)
        elif token.role is Role.LINE_BREAK and _BEFORE_NO_SPACE.search(last):
            token = Token(Role.LINE_BREAK, token.raw)
        last = (last + token.text)[-2:]
        yield token


def _merge_line_breaks(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens, line breaks side by side and the spaces beside them as one."""
    for is_space, group in groupby(tokens, key=_is_space):
        run = [*group]
        if is_space and any(token.role is Role.LINE_BREAK for token in run):
            yield Token(Role.LINE_BREAK, join_raw(run), " ")
        else:
            yield from run


def _is_space(token: Token) -> bool:
    is_text = token.role is Role.TEXT and token.raw.isspace()
    return is_text or token.role is Role.LINE_BREAK


def _num_line_ends(raw: str) -> int:
    """Count tags where there are any: spaces beside them end no line."""
    return raw.count("<") or len(_LINE_END.findall(raw))


def _joins(tokens: Sequence[Token], joined: JoinedLines, language: str) -> list[bool]:
    """Return of each line break whether the lines that it separates are joined."""
    if joined is not JoinedLines.WRAPPED:
        return [joined is JoinedLines.ALL for token in tokens if token.role is Role.LINE_BREAK]
    lines: list[list[str]] = [[]]
    numbers: list[int] = []  # of the lines that end with the line breaks
    for token in tokens:
        if token.role is Role.LINE_BREAK:
            numbers.append(len(lines) - 1)
            lines += [[] for _ in range(_num_line_ends(token.raw))]
        elif token.role is Role.BREAK:
            lines += [[], []]
        else:
            lines[-1].append(token.text)
    goes_on = wrapped_breaks(["".join(line) for line in lines], language)
    return [goes_on[number] for number in numbers]

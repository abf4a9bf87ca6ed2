"""Gathers elements that are not translated to tokens of their own."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from serving.text.markup.tokens import Role, Token, read, written


class Keeping(Enum):
    """Says how an element stays as it is.

    NO: it does not.
    WORDS: it stands for its words in a sentence.
    MARK: it stands in a sentence as a mark does.
    BREAK: it stands between sentences.
    """

    NO = auto()
    WORDS = auto()
    MARK = auto()
    BREAK = auto()


class Part(NamedTuple):
    """Holds a token, and what it is to the element that it belongs to.

    depth: 1 for what begins an element, -1 for what ends one.
    keeping: of the element that it begins.
    """

    token: Token
    depth: int = 0
    keeping: Keeping = Keeping.NO


def with_whole_elements(parts: Iterable[Part]) -> Iterator[Token]:
    """Yield the tokens, one for each outermost element that stays as it is; one that does not end
    goes on to the end.
    """
    element: list[Token] = []
    keeping, depth = Keeping.NO, 0
    for token, change, own_keeping in parts:
        if not element and own_keeping is Keeping.NO:
            yield token
            continue
        keeping = keeping if element else own_keeping
        if not element or token.name == element[0].name:
            depth += change
        element.append(token)
        if depth <= 0:
            yield _whole(element, keeping)
            element, depth = [], 0
    if element:
        yield _whole(element, keeping)


def _whole(element: list[Token], keeping: Keeping) -> Token:
    raw, text = written(element), " ".join(read(element).split())
    if keeping is Keeping.BREAK:
        return Token(Role.BREAK, raw)
    if keeping is Keeping.MARK or not text:
        return Token(Role.POINT, raw)
    return Token(Role.KEPT, raw, text)

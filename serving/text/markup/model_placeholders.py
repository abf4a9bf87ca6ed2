"""Puts short placeholders, %1, in the place of what a model must not translate."""

import re
from collections.abc import Iterator, Sequence
from itertools import count

from serving.text.markup.tokens import Role, Token, join_raw, join_text, join_translations

# What a model reads in the place of what is kept, "%1": of the forms that were tried models copy it
# most often (loadtest/LOG.md). They may write it with a space.
MODEL_PLACEHOLDER = "%{}"
WRITTEN_MODEL_PLACEHOLDER = re.compile(r"%[ \u00a0\u202f.-]?\d{1,4}")
_BETWEEN_KEPT = re.compile(r"[\s,/|+*=&×:;–—-]*")


def with_model_placeholders(passage: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens, those that are kept read as names that are nowhere else in the passage;
    what is kept side by side, or apart by spaces and signs, is one.
    """
    known = {*WRITTEN_MODEL_PLACEHOLDER.findall(join_text(passage))}
    names = (name for name in map(MODEL_PLACEHOLDER.format, count(1)) if name not in known)
    waiting: list[Token] = []  # tokens that are kept, and what may part them
    for token in passage:
        if token.role is Role.NON_TRANSLATABLE or (waiting and _may_part_kept(token)):
            waiting.append(token)
            continue
        yield from _stood_for(waiting, names)
        waiting = []
        yield token
    yield from _stood_for(waiting, names)


def _may_part_kept(token: Token) -> bool:
    if token.role is Role.TEXT:
        return _BETWEEN_KEPT.fullmatch(token.text) is not None
    return token.role is Role.POINT and not token.raw.startswith("<")


def _stood_for(tokens: list[Token], names: Iterator[str]) -> Iterator[Token]:
    """Yield one token for all that is kept, and what follows the last."""
    kept = [*tokens]
    while kept and kept[-1].role is not Role.NON_TRANSLATABLE:
        kept.pop()
    if kept:
        yield Token(Role.NON_TRANSLATABLE, join_raw(kept), next(names), join_translations(kept))
    yield from tokens[len(kept) :]

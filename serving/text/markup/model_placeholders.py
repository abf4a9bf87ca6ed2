"""Puts short placeholders, %1, in the place of what a model must not translate."""

import re
from collections.abc import Iterator, Sequence
from itertools import count

from serving.text.markup.tokens import Role, Token, join_raw, join_text, join_translations

# What a model reads in the place of what is kept, "%1": of the forms that were tried models copy it
# most often (loadtest/LOG.md). They may write it with a space.
MODEL_PLACEHOLDER = "%{}"
WRITTEN_MODEL_PLACEHOLDER = re.compile(r"%[ \u00a0\u202f.-]?\d{1,4}")
_BETWEEN_NON_TRANSLATABLES = re.compile(r"[\s,/|+*=&×:;–—-]*")


def with_model_placeholders(passage: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens, those that are kept read as names that are nowhere else in the passage;
    what is kept side by side, or apart by spaces and signs, is one.
    """
    names_in_text = {*WRITTEN_MODEL_PLACEHOLDER.findall(join_text(passage))}
    names = (name for name in map(MODEL_PLACEHOLDER.format, count(1)) if name not in names_in_text)
    waiting: list[Token] = []  # tokens that are kept, and what may part them
    for token in passage:
        if token.role is Role.NON_TRANSLATABLE or (waiting and _may_stand_between(token)):
            waiting.append(token)
            continue
        yield from _replace_by_placeholder(waiting, names)
        waiting = []
        yield token
    yield from _replace_by_placeholder(waiting, names)


def _may_stand_between(token: Token) -> bool:
    if token.role is Role.TEXT:
        return _BETWEEN_NON_TRANSLATABLES.fullmatch(token.text) is not None
    return token.role is Role.POINT and not token.raw.startswith("<")


def _replace_by_placeholder(tokens: list[Token], names: Iterator[str]) -> Iterator[Token]:
    """Yield one token for all that is kept, and what follows the last."""
    replaced = [*tokens]
    while replaced and replaced[-1].role is not Role.NON_TRANSLATABLE:
        replaced.pop()
    if replaced:
        yield Token(
            Role.NON_TRANSLATABLE, join_raw(replaced), next(names), join_translations(replaced)
        )
    yield from tokens[len(replaced) :]

"""Puts placeholders, `%1`, in the place of what a model must not translate.

Small models copy what is short and was in the texts that they learned from; what is longer they
spell out anew, mostly wrongly.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import count

from serving.text.markup.tokens import Role, Token, join_raw, join_text, join_translations

# Of ten forms that were tried models copy this one and "[1]" most often, and this one they read as
# a thing: "Visit %1" becomes "Visite %1" where "Visit X1" stayed English (loadtest/LOG.md).
MODEL_PLACEHOLDER = "%{}"
# As models write it: some put a space or a stop between.
WRITTEN_MODEL_PLACEHOLDER = re.compile(r"%[ \u00a0\u202f.-]?\d{1,4}")
_BETWEEN_NON_TRANSLATABLES = re.compile(r"[\s,/|+*=&×:;–—-]*")


def with_model_placeholders(passage: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of a passage, with a placeholder that occurs nowhere else in it as the text
    of those that are not translated. Those side by side, or with only spaces and signs between
    them, are one.
    """
    names_in_text = {*WRITTEN_MODEL_PLACEHOLDER.findall(join_text(passage))}
    names = (name for name in map(MODEL_PLACEHOLDER.format, count(1)) if name not in names_in_text)
    waiting: list[Token] = []  # non-translatable ones, and what may stand between them
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
    """Yield one token for all that are not translated, and what follows the last of them."""
    replaced = [*tokens]
    while replaced and replaced[-1].role is not Role.NON_TRANSLATABLE:
        replaced.pop()
    if replaced:
        yield Token(
            Role.NON_TRANSLATABLE, join_raw(replaced), next(names), join_translations(replaced)
        )
    yield from tokens[len(replaced) :]

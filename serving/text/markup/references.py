"""Says how a text with markup writes characters that mean something else there."""

from collections.abc import Iterable, Mapping

from serving.text.markup.options import MarkupKind
from serving.text.markup.tokens import Role, Token

_NEEDED = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
# XML 1.0 can write none of these, in no way.
_NOT_IN_XML = {*range(0x20), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF} - {0x9, 0xA, 0xD}


def references(tokens: Iterable[Token], kind: MarkupKind | None) -> Mapping[int, str | None]:
    """Return a table for `str.translate`: a character that the text writes by a reference once is
    always written so.
    """
    if kind is None:
        return {}
    found: dict[int, str | None] = {}
    if kind is MarkupKind.XML:
        found.update(dict.fromkeys(_NOT_IN_XML))
    for token in tokens:
        if token.role is Role.TEXT and len(token.text) == 1 and _is_reference(token.raw):
            found.setdefault(ord(token.text), token.raw)
    return {**found, **{own: found.get(own) or name for own, name in _NEEDED.items()}}


def _is_reference(raw: str) -> bool:
    return raw.startswith("&") and raw.endswith(";")

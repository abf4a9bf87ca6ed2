"""Writes the dashes, ellipses and quotes of a translation as the source writes them."""

import html
from collections.abc import Callable, Sequence

from serving.text.markup.tokens import Role, Token
from serving.text.markup.translated import TargetWord

_QUOTES = frozenset('"“”„‟«»')
# What a model reads in the place of typographic signs.
_DASH, _ELLIPSIS, _QUOTE = "-", "...", '"'
Places = list[int]


def is_typographic(token: Token) -> bool:
    """Say if a token is a dash, an ellipsis or a quote that is read as another one."""
    is_read_as_other = token.role is Role.TEXT and token.raw != token.text
    return is_read_as_other and token.text.strip() in (_DASH, _ELLIPSIS, _QUOTE)


def write_as_in(tokens: Sequence[Token], words: list[TargetWord]) -> list[TargetWord]:
    """Return the words with the signs of the source, kind by kind where the translation has as
    many; else they stay as the model wrote them.
    """
    signs = [token for token in tokens if is_typographic(token)]
    finders: tuple[tuple[str, Callable[[list[TargetWord]], Places]], ...] = (
        (_DASH, _dashes),
        (_QUOTE, _quotes),
        (_ELLIPSIS, _ellipses),
    )
    for read_as, find in finders:
        wanted = [token for token in signs if token.text.strip() == read_as]
        places = find(words)
        if wanted and len(wanted) == len(places):
            for place, token in zip(places, wanted, strict=True):
                words[place].text = html.unescape(token.raw)
            if read_as == _DASH:
                _close_up(words, places, wanted)
            if read_as == _ELLIPSIS:
                words = _without_further_dots(words, places)
    return words


def _dashes(words: list[TargetWord]) -> Places:
    return [
        place
        for place, word in enumerate(words)
        if word.raw is None and word.text in "-–—" and (word.gap or not place)
    ]


def _quotes(words: list[TargetWord]) -> Places:
    return [n for n, word in enumerate(words) if word.raw is None and word.text in _QUOTES]


def _ellipses(words: list[TargetWord]) -> Places:
    """Return where three dots in a row begin, or one sign for them stands."""
    dots = "".join("." if word.text == "." and word.raw is None else "_" for word in words)
    places, start = [], 0
    while (start := dots.find("...", start)) >= 0:
        places.append(start)
        start += 3
    return places


def _close_up(words: list[TargetWord], places: Places, dashes: Sequence[Token]) -> None:
    """Take the spaces around dashes away that the source writes without."""
    for place, token in zip(places, dashes, strict=True):
        if token.text != token.text.strip():
            words[place].gap = ""
            if place + 1 < len(words):
                words[place + 1].gap = ""


def _without_further_dots(words: list[TargetWord], places: Places) -> list[TargetWord]:
    dots = {place + further for place in places for further in (1, 2)}
    return [word for place, word in enumerate(words) if place not in dots]

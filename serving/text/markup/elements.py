"""Makes one token of each element that stays as it is."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import accumulate
from typing import NamedTuple

from serving.text.markup.tokens import Role, Token, join_raw, join_text


class NonTranslatable(Enum):
    """How an element that is not translated stands in its text.

    AS_WORDS: in the place of words of a sentence.
    AS_TAG: in a sentence as an empty tag does.
    AS_BREAK: between sentences.
    """

    AS_WORDS = auto()
    AS_TAG = auto()
    AS_BREAK = auto()


class ElementToken(NamedTuple):
    """A token, and what it is to the element that it belongs to.

    depth: 1 for what begins an element, -1 for what ends one.
    non_translatable: how the element that it begins stands in the text; None if it is translated.
    is_explicitly_translated: the element that it begins is translated even within one that is not.
    """

    token: Token
    depth: int = 0
    non_translatable: NonTranslatable | None = None
    is_explicitly_translated: bool = False


def with_whole_elements(parts: Iterable[ElementToken]) -> Iterator[Token]:
    """Yield the tokens, one for each outermost element that stays as it is; one that does not end
    goes on to the end. Of an element that stays but for others in it, what stays is a break.
    """
    parts = [*parts]
    stops = _stops(parts)
    num_explicit = [0, *accumulate(part.is_explicitly_translated for part in parts)]
    within: list[tuple[int, bool]] = []  # where elements end, and whether they are translated
    staying: list[Token] = []
    place = 0
    while place < len(parts):
        while within and within[-1][0] <= place:
            within.pop()
        token, depth, non_translatable, is_explicitly_translated = parts[place]
        is_translated = within[-1][1] if within else True
        stop = stops.get(place, len(parts) if depth > 0 else place + 1)
        if not is_translated and is_explicitly_translated:
            is_translated = True
            within.append((stop, True))
        elif is_translated and non_translatable is not None:
            if num_explicit[stop] == num_explicit[place]:
                yield from _break_of(staying)
                staying = []
                yield _whole([part.token for part in parts[place:stop]], non_translatable)
                place = stop
                continue
            is_translated = False
            within.append((stop, False))
        if is_translated:
            yield from _break_of(staying)
            staying = []
            yield token
        else:
            staying.append(token)
        place += 1
    yield from _break_of(staying)


def _stops(parts: Sequence[ElementToken]) -> dict[int, int]:
    """Return for what begins an element the place after the element; not of one without an end."""
    stops: dict[int, int] = {}
    opened: defaultdict[str, list[int]] = defaultdict(list)
    for place, part in enumerate(parts):
        if part.depth > 0:
            opened[part.token.name].append(place)
        elif part.depth < 0 and opened[part.token.name]:
            stops[opened[part.token.name].pop()] = place + 1
    return stops


def _break_of(tokens: Sequence[Token]) -> Iterator[Token]:
    if tokens:
        yield Token(Role.BREAK, join_raw(tokens))


def _whole(element: Sequence[Token], non_translatable: NonTranslatable) -> Token:
    raw, text = join_raw(element), " ".join(join_text(element).split())
    if non_translatable is NonTranslatable.AS_BREAK:
        return Token(Role.BREAK, raw)
    if non_translatable is NonTranslatable.AS_TAG or not text:
        return Token(Role.POINT, raw)
    return Token(Role.NON_TRANSLATABLE, raw, text)

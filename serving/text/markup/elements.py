"""Makes one token of each element that stays as it is."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import accumulate
from typing import NamedTuple

from serving.text.markup.tokens import Role, Token, read, written


class Keeping(Enum):
    """Describes how an element stays as it is.

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
    """A token, and what it is to the element that it belongs to.

    depth: 1 for what begins an element, -1 for what ends one.
    keeping: of the element that it begins.
    is_wanted: the element that it begins is translated wherever it stands.
    """

    token: Token
    depth: int = 0
    keeping: Keeping = Keeping.NO
    is_wanted: bool = False


def with_whole_elements(parts: Iterable[Part]) -> Iterator[Token]:
    """Yield the tokens, one for each outermost element that stays as it is; one that does not end
    goes on to the end. Of an element that stays but for others in it, what stays is a break.
    """
    parts = [*parts]
    stops = _stops(parts)
    num_wanted = [0, *accumulate(part.is_wanted for part in parts)]
    within: list[tuple[int, bool]] = []  # where elements end, and whether they are translated
    staying: list[Token] = []
    place = 0
    while place < len(parts):
        while within and within[-1][0] <= place:
            within.pop()
        token, depth, keeping, is_wanted = parts[place]
        is_translated = within[-1][1] if within else True
        stop = stops.get(place, len(parts) if depth > 0 else place + 1)
        if not is_translated and is_wanted:
            is_translated = True
            within.append((stop, True))
        elif is_translated and keeping is not Keeping.NO:
            if num_wanted[stop] == num_wanted[place]:
                yield from _break_of(staying)
                staying = []
                yield _whole([part.token for part in parts[place:stop]], keeping)
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


def _stops(parts: Sequence[Part]) -> dict[int, int]:
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
        yield Token(Role.BREAK, written(tokens))


def _whole(element: Sequence[Token], keeping: Keeping) -> Token:
    raw, text = written(element), " ".join(read(element).split())
    if keeping is Keeping.BREAK:
        return Token(Role.BREAK, raw)
    if keeping is Keeping.MARK or not text:
        return Token(Role.POINT, raw)
    return Token(Role.KEPT, raw, text)

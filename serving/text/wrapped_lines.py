"""Tells line breaks within a sentence, where a text was wrapped, from those that part it: between
paragraphs, items of a list, verses, parts of an address.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from serving.text.abbreviations import ends_with_abbreviation

_CLOSING = "\"'”’»›)]}*_~` \t"
_OPENING = "\"'“„‘«‹([{¿¡*_~` \t"
_ENDS = tuple(".!?…:;。！？：；؟।۔")
_ITEM = re.compile(
    r"\s*(?:[-*+•◦‣▪●○·–—>#|]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})[.)](?:\s|$)|\[[ xX]?\]|```|~~~)"
)
_KEY = re.compile(r"\s*[\w.-]+(?: [\w.-]+)?\s*(?::(?:\s|$)|=)")
_BORDER = re.compile(r"\s+|['’]")
_FIRST_WORD = re.compile(r"[\w-]+")
_COLUMNS = re.compile(r"\t|\S {3,}\S")
_FULL_LINE = 40  # characters; shorter lines may be short for any reason
_FEWEST_OF_CLAUSE = 3  # words of a line that may be a clause of text in small letters
_FEWEST_OF_PHRASE = 4  # words of a line that may be an unfinished sentence by itself
_FEWEST_OF_BLOCK = 3  # lines by whose lengths a wrapped paragraph is known


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that call for another one in the same sentence: articles, prepositions, conjunctions.
_CALLING = {
    "en": _words(
        "a an the this these my your his its our their and or but nor of to in on at by for from"
        " with without into onto about over under between behind beside near through during before"
        " after against among around as than that which who whose if because while when where"
        " although unless until so is are was were be been being am has have had will would can"
        " could should may might must do does did not very every each some any no"
    ),
    "fr": _words(
        "le la les l un une des du de d au aux à en dans sur sous avec sans pour par chez vers"
        " entre devant derrière contre pendant depuis avant après et ou mais ni car que qu qui dont"
        " où si quand lorsque comme parce est sont était étaient a ont avait être avoir ne n pas"
        " très ce cet cette ces mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs"
        " plus"
    ),
    "de": _words(
        "der die das dem den des ein eine einen einem einer eines im in am an auf aus bei mit nach"
        " von vom vor zu zum zur für gegen ohne um über unter hinter neben zwischen durch während"
        " und oder aber sondern dass weil wenn als ob ist sind war waren hat haben hatte wird"
        " werden kann können soll muss nicht sehr mein meine meinen meinem sein seine seinen seinem"
        " ihr ihre ihren ihrem unser unsere dieser diese dieses diesem diesen kein keine"
    ),
    "es": _words(
        "el la los las lo un una unos unas de del a al en con sin por para sobre bajo entre hacia"
        " hasta desde contra durante y e o u pero ni que si cuando donde como porque es son era"
        " está están ha han había ser estar no muy este esta estos estas ese esa mi mis tu tus su"
        " sus nuestro nuestra más se"
    ),
    "pt": _words(
        "o a os as um uma uns umas de do da dos das em no na nos nas ao à aos às por pelo pela para"
        " com sem sobre sob entre até desde contra durante e ou mas nem que se quando onde como"
        " porque é são era está estão foi tem têm ser não muito este esta estes estas esse essa meu"
        " minha seu sua nosso nossa mais"
    ),
    "it": _words(
        "il lo la i gli le un uno una di del della dei degli delle dello a al alla ai alle in nel"
        " nella nei nelle con senza per su sul sulla da dal dalla tra fra e o ma né che se quando"
        " dove come perché è sono era ha hanno essere non molto questo questa questi queste mio"
        " mia suo sua nostro più si"
    ),
    "nl": _words(
        "de het een van in op aan met voor naar bij uit over onder tussen door tegen zonder na te"
        " en of maar want dat die als omdat wanneer waar is zijn was waren heeft hebben had wordt"
        " worden kan niet zeer heel mijn jouw uw haar ons onze hun deze dit geen"
    ),
}
_CALLING_IN_ANY = frozenset().union(*_CALLING.values())
# Those that a short text may end with, as a button does: "Log in".
_MAY_END = _words(
    "in on at by for to of with over under up out about is are was were be do does did has have"
    " had not no so that this who which when where a may can will must am an auf aus um über vor"
    " zu bei mit nach dass ist es se no está non è sono pas plus contre avant après"
)


def wrapped_breaks(lines: Sequence[str], language: str) -> list[bool]:
    """Say of each break between two lines if the sentence before it goes on after it.

    language: of the lines, in two letters; empty if it is not known.
    """
    goes_on = [False] * max(len(lines) - 1, 0)
    for start, end in _blocks(lines):
        block = lines[start:end]
        is_paragraph = len(block) >= _FEWEST_OF_BLOCK
        width = max(len(line.strip()) for line in block) if is_paragraph else None
        may = [_may_go_on(*pair, language) for pair in pairwise(block)]
        for first, last in _chains(may):
            chain = _Chain(block[first : last + 1], width, language)
            goes_on[start + first : start + last] = chain.breaks()
    return goes_on


def has_wrapped_lines(text: str, language: str) -> bool:
    """Say if a sentence of a text goes on in another line."""
    return any(wrapped_breaks(text.splitlines(), language))


def _may_go_on(line: str, following: str, language: str) -> bool:
    """Say if nothing speaks against a sentence that goes on from a line to the next."""
    if ends_sentence(line, language) or not line.strip() or _ITEM.match(following):
        return False
    if _COLUMNS.search(line.strip()) or _COLUMNS.search(following.strip()):
        return False
    return bool(following.strip()) and not (_KEY.match(line) and _KEY.match(following))


def ends_sentence(line: str, language: str) -> bool:
    """Say if a line ends with the mark of a sentence's end, whatever closes after it.

    language: empty if it is not known.
    """
    bare = line.rstrip(_CLOSING)
    return bare.endswith(_ENDS) and not ends_with_abbreviation(bare, language)


class _Chain:
    """Holds lines that may be one sentence.

    paragraph_width: of the lines without an empty one between that they are of; None for too few.
    """

    def __init__(self, lines: Sequence[str], paragraph_width: int | None, language: str) -> None:
        self._lines, self._language = lines, language
        self._paragraph_width = paragraph_width
        self._calling = _CALLING.get(language, frozenset()) if language else _CALLING_IN_ANY
        self._is_closed = ends_sentence(lines[-1], language)
        self._is_begun = not _begins_small(lines[0])
        self._is_wrapped = self._is_begun and _are_wrapped(lines)

    def breaks(self) -> list[bool]:
        pairs = [*pairwise(self._lines)]
        if not any(len(line.split()) > 1 for line in self._lines):
            return [False] * len(pairs)
        return [self._goes_on(*pair) for pair in pairs]

    def _goes_on(self, line: str, following: str) -> bool:
        last = _last_word(line)
        calls = last in self._calling or ends_with_abbreviation(line, self._language)
        calls_surely = (calls and last not in _MAY_END) or _is_hyphenated(line)
        if not _begins_small(following):
            closed_after = calls or self._fills_paragraph(line, following)
            return calls_surely or (self._is_closed and closed_after)
        if self._is_closed or calls_surely:
            return True
        linked = calls or _first_word(following) in self._calling
        if self._is_begun:
            return linked or self._is_wrapped
        return linked and len(line.split()) >= _FEWEST_OF_CLAUSE

    def _fills_paragraph(self, line: str, following: str) -> bool:
        width = self._paragraph_width
        return width is not None and _is_full(line, following, width, _FULL_LINE)


def _are_wrapped(lines: Sequence[str]) -> bool:
    """Say if each line is a phrase that had no more room for the next one's first word."""
    width = max(len(line.strip()) for line in lines)
    return all(
        len(line.split()) >= _FEWEST_OF_PHRASE and _is_full(line, following, width)
        for line, following in pairwise(lines)
    )


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    start = 0
    for place, line in enumerate([*lines, ""]):
        if not line.strip():
            if start < place:
                yield start, place
            start = place + 1


def _chains(may_go_on: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of all that are linked."""
    first = 0
    for place, links in enumerate([*may_go_on, False]):
        if not links:
            if first < place:
                yield first, place
            first = place + 1


def _is_full(line: str, following: str, width: int, least: int = 0) -> bool:
    """Say if a line of at least so many characters had no room for the next one's first word."""
    length = len(line.strip())
    return length >= least and length + len(_first_word(following)) + 1 > width


def _is_hyphenated(line: str) -> bool:
    return re.search(r"\w[-‐\u00AD]\s*$", line) is not None


def _begins_small(line: str) -> bool:
    return line.lstrip(_OPENING)[:1].islower()


def _first_word(line: str) -> str:
    found = _FIRST_WORD.search(line)
    return found.group().lower() if found else ""


def _last_word(line: str) -> str:
    """Return the last word if nothing follows it; an elided one, as in l', too."""
    *_, last = ("", *_BORDER.split(line.rstrip(" \t'’")))
    bare = last.lstrip(_OPENING)
    return bare.lower() if bare.isalpha() else ""

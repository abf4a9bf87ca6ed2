"""Finds the line breaks within sentences, where a text was wrapped to a width."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from serving.text.abbreviations import ends_with_abbreviation, words

_CLOSING = "\"'”’»›)]}*_~` \t"
_OPENING_MARKS = "\"'“„‘«‹([{¿¡*_~` \t"
_ENDS = tuple(".!?…:;。！？：；؟।۔")
_ITEM = re.compile(
    r"\s*(?:[-*+•◦‣▪●○·–—>#|]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})[.)](?:\s|$)|\[[ xX]?\]|```|~~~)"
)
_KEY = re.compile(r"\s*[\w.-]+(?: [\w.-]+)?\s*(?::(?:\s|$)|=)")
_BORDER = re.compile(r"\s+|['’]")
_WORD_OF_LINE = re.compile(r"[\w-]+")
_HYPHENATED = re.compile(r"\w[-‐\u00AD]\s*$")
_COLUMNS = re.compile(r"\t|\S {3,}\S")
_MIN_FULL_LENGTH = 40  # characters; shorter lines may be short for any reason
_MIN_WORDS_OF_CLAUSE = 3  # in a line of a text without capitals
_MIN_WORDS_OF_PHRASE = 4  # in a line without a function word at its end
_MIN_LINES_OF_PARAGRAPH = 3  # from which its width can be known


# Articles, prepositions, conjunctions, auxiliaries: after these a sentence goes on.
FUNCTION_WORDS = {
    "en": words(
        "a an the this these my your his its our their and or but nor of to in on at by for from"
        " with without into onto about over under between behind beside near through during before"
        " after against among around as than that which who whose if because while when where"
        " although unless until so is are was were be been being am has have had will would can"
        " could should may might must do does did not very every each some any no"
    ),
    "fr": words(
        "le la les l un une des du de d au aux à en dans sur sous avec sans pour par chez vers"
        " entre devant derrière contre pendant depuis avant après et ou mais ni car que qu qui dont"
        " où si quand lorsque comme parce est sont était étaient a ont avait être avoir ne n pas"
        " très ce cet cette ces mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs"
        " plus"
    ),
    "de": words(
        "der die das dem den des ein eine einen einem einer eines im in am an auf aus bei mit nach"
        " von vom vor zu zum zur für gegen ohne um über unter hinter neben zwischen durch während"
        " und oder aber sondern dass weil wenn als ob ist sind war waren hat haben hatte wird"
        " werden kann können soll muss nicht sehr mein meine meinen meinem sein seine seinen seinem"
        " ihr ihre ihren ihrem unser unsere dieser diese dieses diesem diesen kein keine"
    ),
    "es": words(
        "el la los las lo un una unos unas de del a al en con sin por para sobre bajo entre hacia"
        " hasta desde contra durante y e o u pero ni que si cuando donde como porque es son era"
        " está están ha han había ser estar no muy este esta estos estas ese esa mi mis tu tus su"
        " sus nuestro nuestra más se"
    ),
    "pt": words(
        "o a os as um uma uns umas de do da dos das em no na nos nas ao à aos às por pelo pela para"
        " com sem sobre sob entre até desde contra durante e ou mas nem que se quando onde como"
        " porque é são era está estão foi tem têm ser não muito este esta estes estas esse essa meu"
        " minha seu sua nosso nossa mais"
    ),
    "it": words(
        "il lo la i gli le un uno una di del della dei degli delle dello a al alla ai alle in nel"
        " nella nei nelle con senza per su sul sulla da dal dalla tra fra e o ma né che se quando"
        " dove come perché è sono era ha hanno essere non molto questo questa questi queste mio"
        " mia suo sua nostro più si"
    ),
    "nl": words(
        "de het een van in op aan met voor naar bij uit over onder tussen door tegen zonder na te"
        " en of maar want dat die als omdat wanneer waar is zijn was waren heeft hebben had wordt"
        " worden kan niet zeer heel mijn jouw uw haar ons onze hun deze dit geen"
    ),
}
FUNCTION_WORDS_OF_ALL = frozenset().union(*FUNCTION_WORDS.values())
# Function words that a short text may end with, as in "Log in".
_MAY_END = words(
    "in on at by for to of with over under up out about is are was were be do does did has have"
    " had not no so that this who which when where a may can will must am an auf aus um über vor"
    " zu bei mit nach dass ist es se no está non è sono pas plus contre avant après"
)


def wrapped_breaks(lines: Sequence[str], language: str) -> list[bool]:
    """Return for each break between two lines whether it is within a sentence.

    language: of the lines, in two letters; empty if it is not known.
    """
    wrapped = [False] * max(len(lines) - 1, 0)
    for start, end in _runs(bool(line.strip()) for line in lines):
        block = lines[start:end]
        is_paragraph = len(block) >= _MIN_LINES_OF_PARAGRAPH
        width = max(len(line.strip()) for line in block) if is_paragraph else None
        for first, last in _runs(_may_go_on(*pair, language) for pair in pairwise(block)):
            stretch = _Stretch(block[first : last + 1], width, language)
            wrapped[start + first : start + last] = stretch.wrapped_breaks()
    return wrapped


def has_wrapped_lines(text: str, language: str) -> bool:
    return any(wrapped_breaks(text.splitlines(), language))


def _runs(values: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of true values."""
    end = 0
    for value, run in groupby(values):
        start, end = end, end + sum(1 for _ in run)
        if value:
            yield start, end


def _may_go_on(line: str, following: str, language: str) -> bool:
    """Return whether a sentence may go on from a line to the next."""
    if ends_sentence(line, language) or _ITEM.match(following):
        return False
    if _COLUMNS.search(line.strip()) or _COLUMNS.search(following.strip()):
        return False
    return not (_KEY.match(line) and _KEY.match(following))


def ends_sentence(line: str, language: str) -> bool:
    """Return whether a line ends with a mark that ends sentences, or with one and closing marks.

    language: empty if it is not known.
    """
    bare = line.rstrip(_CLOSING)
    return bare.endswith(_ENDS) and not ends_with_abbreviation(bare, language)


class _Stretch:
    """Lines that may be one sentence.

    paragraph_width: length of the longest line of the paragraph; None where it has few lines.
    """

    def __init__(self, lines: Sequence[str], paragraph_width: int | None, language: str) -> None:
        self._lines, self._language = lines, language
        self._paragraph_width = paragraph_width
        function_words = (
            FUNCTION_WORDS.get(language, frozenset()) if language else FUNCTION_WORDS_OF_ALL
        )
        self._function_words = function_words
        self._has_end = ends_sentence(lines[-1], language)
        self._has_capital = not _begins_small(lines[0])
        self._is_wrapped = self._has_capital and _are_wrapped(lines)

    def wrapped_breaks(self) -> list[bool]:
        has_phrase = any(len(line.split()) > 1 for line in self._lines)
        return [has_phrase and self._goes_on(*pair) for pair in pairwise(self._lines)]

    def _goes_on(self, line: str, following: str) -> bool:
        last = _last_word(line)
        may = last in self._function_words or ends_with_abbreviation(line, self._language)
        must = (may and last not in _MAY_END) or _HYPHENATED.search(line) is not None
        if not _begins_small(following):
            return must or (self._has_end and (may or self._fills_paragraph(line, following)))
        if self._has_end or must:
            return True
        is_linked = may or _first_word(following) in self._function_words
        if self._has_capital:
            return is_linked or self._is_wrapped
        return is_linked and len(line.split()) >= _MIN_WORDS_OF_CLAUSE

    def _fills_paragraph(self, line: str, following: str) -> bool:
        width = self._paragraph_width
        is_long = len(line.strip()) >= _MIN_FULL_LENGTH
        return width is not None and is_long and _is_full(line, following, width)


def _are_wrapped(lines: Sequence[str]) -> bool:
    """Return whether each line is a phrase without room for the next line's first word."""
    width = max(len(line.strip()) for line in lines)
    return all(
        len(line.split()) >= _MIN_WORDS_OF_PHRASE and _is_full(line, following, width)
        for line, following in pairwise(lines)
    )


def _is_full(line: str, following: str, width: int) -> bool:
    """Return whether a line has no room for the next line's first word."""
    return len(line.strip()) + len(_first_word(following)) + 1 > width


def _begins_small(line: str) -> bool:
    return line.lstrip(_OPENING_MARKS)[:1].islower()


def _first_word(line: str) -> str:
    found = _WORD_OF_LINE.search(line)
    return found.group().lower() if found else ""


def _last_word(line: str) -> str:
    """Return the last word, also an elided one, as in l'; empty if anything else follows it."""
    last = _BORDER.split(line.rstrip(" \t'’"))[-1]
    bare = last.lstrip(_OPENING_MARKS)
    return bare.lower() if bare.isalpha() else ""

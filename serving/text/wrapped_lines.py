"""Finds the line breaks within sentences, where a text was wrapped to a width."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from serving.text.abbreviations import ends_with_abbreviation, word_set
from serving.text.end_marks import (
    CLAUSE_END_MARKS,
    CLOSING_MARKS,
    SCRIPT_END_MARKS,
    SENTENCE_END_MARKS,
)
from serving.text.function_words import FUNCTION_WORDS, FUNCTION_WORDS_OF_ALL

_CLOSING = CLOSING_MARKS + "*_~` \t"  # and marks of Markdown
_OPENING_MARKS = "\"'“„‘«‹([{¿¡*_~` \t"
_ENDS = tuple(SENTENCE_END_MARKS + SCRIPT_END_MARKS + CLAUSE_END_MARKS)
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
# Function words that a short text may end with, as in "Log in".
_MAY_END = word_set(
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
    match = _WORD_OF_LINE.search(line)
    return match.group().lower() if match else ""


def _last_word(line: str) -> str:
    """Return the last word, also an elided one, as in l'; empty if anything else follows it."""
    last = _BORDER.split(line.rstrip(" \t'’"))[-1]
    bare = last.lstrip(_OPENING_MARKS)
    return bare.lower() if bare.isalpha() else ""

"""Cuts a text into segments a translation model can take, and puts their translations back.

Lines are separate, sentences within a line are found by sentencex (Wikimedia, about 300
languages), those that it cuts after abbreviations are joined again, and a sentence that is still
too long is cut at the safest place near its middle.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import sentencex

from serving.text.abbreviations import sentence_continues

Fits = Callable[[str], bool]
_LINE = re.compile(r"[^\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Where a long sentence may be cut, safest first: after a clause, and after a comma. Marks with a
# space after them, or of scripts that write none: "3,000" and "10:30" stay whole.
_AFTER_CLAUSE = re.compile(r"(?<=[;:!?.…—–])\s+|(?<=\s-)\s+|(?<=[。；：！？])\s*")
_AFTER_COMMA = re.compile(r"(?<=[,)\]»”])\s+|(?<=[、，])\s*")
_BETWEEN_WORDS = re.compile(r"\s+")
# Words that mostly begin a clause; languages without an entry are cut at their commas.
_CONJUNCTIONS = {
    "de": "aber als bevor bis damit dass denn nachdem ob obwohl oder sobald sondern und weil wenn",
    "en": "after although and because before but if or since so than that though unless until when"
    " where whereas which while who whose",
    "es": "aunque como cuando donde e mientras ni o pero porque que si sino u y",
    "fr": "car comme dont et lorsque mais ni or ou où parce puisque quand que qui quoique si",
    "it": "che come dove e ed ma mentre né o perché poiché quando se",
    "nl": "als dat doordat en maar nadat of omdat terwijl toen want zodat",
    "pl": "a aby albo ale bo czy gdy i jeśli lub oraz ponieważ że",
    "pt": "como e embora mas nem onde ou pois porque quando que se",
    "ru": "а если и или когда который но однако поскольку потому что чтобы",
}
_OPENING, _CLOSING = frozenset("([{«“„"), frozenset(")]}»”")
_LONGEST_STRETCH = 5_000  # characters; sentencex takes time by the square of a line's length
# Read as spaces: sentencex panics at "A\u00a0.", because it takes any blank for one byte.
_BLANK = re.compile(r"\s")
_ZERO_WIDTH_JOINER = "\u200d"
# Characters with marks, or emoji that are joined; a longer cluster is cut anywhere, in linear time.
_LONGEST_CLUSTER = 32


class Splitting(StrEnum):
    """Where a text is cut, besides where it is too long.

    SENTENCES: at the ends of sentences, and at line breaks but those within a wrapped sentence.
    LINES: at the ends of sentences and at all line breaks.
    NO_NEWLINES: at the ends of sentences only.
    NONE: nowhere.

    A line break at which a text is not cut is a space to the model, and comes back.
    """

    SENTENCES = "sentences"
    LINES = "lines"
    NO_NEWLINES = "no_newlines"
    NONE = "none"


@dataclass(frozen=True)
class TextLayout:
    """A text as segments and what stands before, between and after them: one gap more."""

    segments: tuple[str, ...]
    gaps: tuple[str, ...]

    def fill(self, segments: Sequence[str]) -> str:
        """Return the text with `segments` in place of its own; with its own, the text itself."""
        parts: list[str] = []
        for gap, segment in zip(self.gaps, segments, strict=False):
            parts += gap, segment
        return "".join(parts) + self.gaps[-1]


def split_text(text: str, language: str, fits: Fits, finds_sentences: bool = True) -> TextLayout:
    """Cut `text` so that every segment fits. Whitespace goes to the gaps, exactly.

    finds_sentences: else a line is cut only where it does not fit.
    """
    segments: list[str] = []
    gaps: list[str] = []
    end = 0  # of the last segment
    for line in _LINE.finditer(text):
        start = line.start()
        sentences = _split_line(line.group(), language) if finds_sentences else [line.group()]
        for sentence in sentences:
            fits_whole = len(sentence) < 2 or fits(sentence.strip())
            pieces = [sentence] if fits_whole else _split_long(sentence, fits, language)
            for piece in pieces:
                if segment := piece.strip():
                    first = start + piece.index(segment)
                    gaps.append(text[end:first])
                    segments.append(segment)
                    end = first + len(segment)
                start += len(piece)
    return TextLayout(tuple(segments), (*gaps, text[end:]))


def _split_line(line: str, language: str) -> list[str]:
    """Return the sentences of a line, which joined are the line."""
    stretches: Iterable[str] = [line]
    if len(line.strip()) > _LONGEST_STRETCH:
        stretches = _split_long(line, lambda text: len(text) <= _LONGEST_STRETCH)
    sentences: list[str] = []
    for stretch in stretches:
        spaced = _BLANK.sub(" ", stretch)
        try:
            parts = list(sentencex.segment(language, spaced))
        except BaseException as error:  # a panic of its Rust code is no Exception
            if type(error).__name__ != "PanicException":
                raise
            parts = [spaced]
        start = end = 0
        for part in parts:  # joined again where sentencex has cut after an abbreviation
            if start < end and not sentence_continues(spaced[start:end], part, language):
                sentences.append(stretch[start:end])
                start = end
            end += len(part)
        sentences.append(stretch[start:end])
    return sentences


def _split_long(text: str, fits: Fits, language: str = "") -> Iterator[str]:
    """Yield a text that does not fit in parts that do, cut in two as often as needed."""
    cut = _safest_cut(text, language)
    for part in (text[:cut], text[cut:]):
        if len(part) < 2 or fits(part.strip()):
            yield part
        else:
            yield from _split_long(part, fits, language)


def _safest_cut(text: str, language: str) -> int:
    """Return the cut of the safest kind in the middle half of the text, the nearest to its middle;
    where there are any, one outside brackets and quotes.
    """
    middle, quarter = len(text) // 2, len(text) // 4
    outside = _outside_brackets(text)
    clauses: list[list[int]] = []
    for pattern in (_AFTER_CLAUSE, _AFTER_COMMA, _before_conjunction(language)):
        ends = (match.end() for match in pattern.finditer(text, quarter, len(text) - quarter))
        clauses.append([end for end in ends if 0 < end < len(text)])
    words = _BETWEEN_WORDS.finditer(text, quarter, len(text) - quarter)
    for cuts in (
        *([cut for cut in kind if outside[cut]] for kind in clauses),
        *clauses,
        [match.end() for match in words],
    ):
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - middle))
    return _between_characters(text, middle)


@cache
def _before_conjunction(language: str) -> re.Pattern[str]:
    """Match the spaces before a conjunction; nothing in languages whose are not listed."""
    words = _CONJUNCTIONS.get(language, "").split()
    return re.compile(rf"\s+(?=(?:{'|'.join(words)})\s)") if words else re.compile(r"(?!)")


def _outside_brackets(text: str) -> list[bool]:
    """Return of each character whether no bracket or quote is open before it."""
    outside, depth = [], 0
    for character in text:
        outside.append(depth == 0)
        depth += character in _OPENING
        depth -= character in _CLOSING and depth > 0
    return outside


def _between_characters(text: str, position: int) -> int:
    """Return `position`, or one before it that is not within a letter's marks or an emoji."""
    for cut in range(position, max(position - _LONGEST_CLUSTER, 0), -1):
        mark = unicodedata.category(text[cut]).startswith("M") or text[cut] == _ZERO_WIDTH_JOINER
        if not mark and text[cut - 1] != _ZERO_WIDTH_JOINER:
            return cut
    return position

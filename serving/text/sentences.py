"""Cuts a text into segments a translation model can take, and puts their translations back.

Lines are kept apart, sentences within a line are found by sentencex (Wikimedia, about 300
languages), those that it cuts after abbreviations are joined again, and a sentence that is still
too long is cut at the safest place near its middle.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import sentencex

from serving.text.abbreviations import sentence_continues

Fits = Callable[[str], bool]
_LINE_OR_BREAK = re.compile(r"[^\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
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
_LONGEST_STRETCH = 5_000  # characters; sentencex takes time by the square of a line's
_BLANK = re.compile(r"\s")  # sentencex panics at "A\u00a0.": it takes any blank for one byte
_ZERO_WIDTH_JOINER = "\u200d"


class Splitting(StrEnum):
    """Describes where a text is cut, apart from where it is too long.

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
        body = (gap + segment for gap, segment in zip(self.gaps, segments, strict=False))
        return "".join(body) + self.gaps[-1]


def split_text(text: str, language: str, fits: Fits, finds_sentences: bool = True) -> TextLayout:
    """Cut `text` so that every segment fits. Whitespace goes to the gaps, exactly.

    finds_sentences: else a line is cut only where it does not fit.
    """
    segments: list[str] = []
    gaps: list[str] = []
    end = 0
    for start, segment in _segments(text, language, fits, finds_sentences):
        gaps.append(text[end:start])
        segments.append(segment)
        end = start + len(segment)
    return TextLayout(tuple(segments), (*gaps, text[end:]))


def _segments(
    text: str, language: str, fits: Fits, finds_sentences: bool
) -> Iterator[tuple[int, str]]:
    """Yield start and text of each segment, none with whitespace at its ends."""
    for line in _LINE_OR_BREAK.finditer(text):
        start = line.start()
        whole = line.group()
        for sentence in _sentences(whole, language) if finds_sentences else [whole]:
            for piece in _pieces(sentence, fits, language):
                stripped = piece.strip()
                if stripped:
                    yield start + piece.index(stripped), stripped
                start += len(piece)


def _sentences(line: str, language: str) -> Iterator[str]:
    """Yield the sentences of a line, which joined are the line."""
    for stretch in _pieces(line, lambda text: len(text) <= _LONGEST_STRETCH):
        start = 0
        for sentence in _whole(_segmented(_BLANK.sub(" ", stretch), language), language):
            yield stretch[start : start + len(sentence)]
            start += len(sentence)


def _whole(sentences: Sequence[str], language: str) -> Iterator[str]:
    """Yield the sentences, those joined that were cut after an abbreviation."""
    held = ""
    for sentence in sentences:
        if held and not sentence_continues(held, sentence, language):
            yield held
            held = ""
        held += sentence
    yield held


def _segmented(line: str, language: str) -> list[str]:
    """Return what sentencex makes of a line; the line itself where its Rust code panics."""
    try:
        return list(sentencex.segment(language, line))
    except BaseException as error:  # a panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return [line]


def _pieces(text: str, fits: Fits, language: str = "") -> Iterator[str]:
    """Yield `text` in parts that fit, cut in two as often as needed."""
    if len(text) < 2 or fits(text.strip()):
        yield text
        return
    cut = _safest_cut(text, language)
    yield from _pieces(text[:cut], fits, language)
    yield from _pieces(text[cut:], fits, language)


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
    """Return `position`, moved left off combining marks, variation selectors and joined emoji."""
    for cut in range(position, max(position - 32, 0), -1):
        mark = unicodedata.category(text[cut]).startswith("M") or text[cut] == _ZERO_WIDTH_JOINER
        if not mark and text[cut - 1] != _ZERO_WIDTH_JOINER:
            return cut
    return position

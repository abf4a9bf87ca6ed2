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

import sentencex

from serving.text.abbreviations import goes_on

Fits = Callable[[str], bool]
_LINE_OR_BREAK = re.compile(r"[^\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Where a long sentence may be cut, safest first: after a clause, after a comma, between words.
_CUTS = tuple(re.compile(p) for p in (r"(?<=[;:!?.…—。；：])\s*", r"(?<=[,)\]»”、，])\s*", r"\s+"))
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
            for piece in _pieces(sentence, fits):
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
        if held and not goes_on(held, sentence, language):
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


def _pieces(text: str, fits: Fits) -> Iterator[str]:
    """Yield `text` in parts that fit, cut in two as often as needed."""
    if len(text) < 2 or fits(text.strip()):
        yield text
        return
    cut = _safest_cut(text)
    yield from _pieces(text[:cut], fits)
    yield from _pieces(text[cut:], fits)


def _safest_cut(text: str) -> int:
    """Return the cut of the safest kind in the middle half of the text, else the nearest to it."""
    middle, quarter = len(text) // 2, len(text) // 4
    for pattern in _CUTS:
        ends = (match.end() for match in pattern.finditer(text, quarter, len(text) - quarter))
        cuts = [end for end in ends if 0 < end < len(text)]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - middle))
    return _between_characters(text, middle)


def _between_characters(text: str, position: int) -> int:
    """Return `position`, moved left off combining marks, variation selectors and joined emoji."""
    for cut in range(position, max(position - 32, 0), -1):
        mark = unicodedata.category(text[cut]).startswith("M") or text[cut] == _ZERO_WIDTH_JOINER
        if not mark and text[cut - 1] != _ZERO_WIDTH_JOINER:
            return cut
    return position

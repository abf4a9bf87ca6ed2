"""Links the words of a translation with the source words that they look at, by their tokens'
attention.

Attention comes as one row per target token over all source tokens. Tokens are the bytes that they
stand for; special tokens stand for none, lie nowhere in the text, and what attends to them is left
out. It knows text and numbers only, no model.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# As str.split and Pharaoh's format count words; who wants punctuation apart sends it apart.
WORD = re.compile(r"\S+")
# As papers draw alignments: punctuation, and what is elided before a word (l', qu'), apart.
DRAWN_WORD = re.compile(r"(?:[cdjlmnst]|\w*qu)['’](?=\w)|\w(?:\S*\w)?|[^\w\s]+", re.IGNORECASE)


class Span(NamedTuple):
    """Marks the characters [start, end) of a text."""

    start: int
    end: int


class Link(NamedTuple):
    """Links a source word with a target word, both counted from 0."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text and where each of its tokens lies in it.

    spans: tokens that share a character all hold it; those without bytes are empty.
    """

    text: str
    spans: tuple[Span, ...]

    @classmethod
    def from_pieces(cls, pieces: Iterable[bytes]) -> "TokenizedText":
        """Return the text that the tokenizer decodes them to: U+FFFD for what is no UTF-8."""
        pieces = [*pieces]
        whole = b"".join(pieces)
        if whole.isascii():
            places = pairwise(accumulate(map(len, pieces), initial=0))
            return cls(whole.decode("ascii"), tuple(map(Span._make, places)))
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        written, spans = [], []
        start, is_cut = 0, False
        for piece in pieces:
            if piece.isascii() and not is_cut:  # most are; decoding them takes half of the time
                part = piece.decode("ascii")
            else:
                part = decoder.decode(piece)
                is_cut = bool(decoder.getstate()[0])
            end = start + len(part)
            spans.append(Span(start, end + (is_cut and bool(piece))))
            written.append(part)
            start = end
        written.append(decoder.decode(b"", final=True))
        return cls("".join(written), tuple(spans))


def over_text(tokens: TokenizedText, text: str) -> TokenizedText:
    """Return tokens over the text that a tokenizer has read, which it may have changed."""
    if text == tokens.text:
        return tokens
    places = [0] * (len(tokens.text) + 1)
    for own, other, size in SequenceMatcher(None, text, tokens.text, False).get_matching_blocks():
        for offset in range(size):
            places[other + offset] = own + offset
            places[other + offset + 1] = own + offset + 1
    places = [*accumulate(places, max)]
    spans = (Span(places[span.start], places[span.end]) for span in tokens.spans)
    return TokenizedText(text, tuple(spans))


def words_of(text: str, pattern: re.Pattern[str] = WORD) -> list[Span]:
    """Return where the words lie; by default word i is ``text.split()[i]``."""
    return [Span(*match.span()) for match in pattern.finditer(text)]


def word_attention(
    attention: Array,
    target: TokenizedText,
    source: TokenizedText,
    target_words: Sequence[Span] | None = None,
    source_words: Sequence[Span] | None = None,
) -> Array:
    """Sum the attention of tokens up to that of words.

    attention [target tokens, source tokens] -> f64 [target words, source words]: the sum over a
    source word's tokens, the mean over a target word's. A token that reaches into several words
    belongs to each by its share of characters.
    """
    target_words = words_of(target.text) if target_words is None else target_words
    source_words = words_of(source.text) if source_words is None else source_words
    rows = shares_of(target_words, target.spans)
    rows /= np.maximum(rows.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    matrix: Array = rows @ over_source_words(attention, source, source_words)
    return matrix


def over_source_words(attention: Array, source: TokenizedText, words: Sequence[Span]) -> Array:
    """Sum the attention over each source word's tokens.

    attention [target tokens, source tokens] -> f64 [target tokens, source words]
    """
    summed: Array = attention.astype(np.float64) @ shares_of(words, source.spans).T
    return summed


def links(matrix: Array) -> list[Link]:
    """Link each target word with the source word it attends to most, the first of equals; not a
    target word that attends to no word at all. By source word, then by target word.
    """
    if not matrix.size:
        return []
    best = matrix.argmax(axis=1).tolist()
    attends = (matrix.max(axis=1) > 0).tolist()
    return sorted(Link(best[i], i) for i in range(len(matrix)) if attends[i])


def pharaoh(links: Iterable[Link]) -> str:
    """Write links as fast_align and Moses do, ``0-0 1-2``: source and target word of each."""
    return " ".join(f"{link.source}-{link.target}" for link in links)


def shares_of(words: Sequence[Span], tokens: Sequence[Span]) -> Array:
    """Return how much of each token lies in each word, of what lies in any.

    The result is [words, tokens], f64.
    """
    word, token = (np.array(spans, np.int64).reshape(-1, 2) for spans in (words, tokens))
    starts = np.maximum(word[:, None, 0], token[None, :, 0])
    ends = np.minimum(word[:, None, 1], token[None, :, 1])
    common = np.maximum(ends - starts, 0).astype(np.float64)
    shares: Array = common / np.maximum(common.sum(axis=0), 1)
    return shares


BARE_WORD = re.compile(r"\w(?:\S*\w)?|[^\w\s]+")  # punctuation around a word is apart from it


def placeholder_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Match these strings, the longest of several, and nothing else."""
    by_length = sorted(filter(None, names), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, by_length)) or r"(?!)")


def replace_unknown(
    pieces: Sequence[bytes], is_unknown: Sequence[bool], attention: Array, source: TokenizedText
) -> list[bytes]:
    """Return the target's tokens with, for each unknown one, the source word that it attends to
    most (Luong et al. 2015); once where several in a row attend to the same. An unknown token
    that attends to no word stays as it is.

    attention: [target tokens, source tokens]
    """
    words = words_of(source.text, BARE_WORD)
    by_word = over_source_words(attention, source, words)
    replaced: list[bytes] = []
    last = None
    for piece, unknown, weights in zip(pieces, is_unknown, by_word, strict=True):
        word = words[weights.argmax()] if unknown and weights.any() else None
        if word is None:
            replaced.append(piece)
        elif word == last:
            replaced.append(b"")
        else:
            copied = source.text[word.start : word.end]
            replaced.append(_spaced(b"".join(replaced), piece, copied))
        last = word
    return replaced


def replace_placeholders(
    target: TokenizedText,
    source: TokenizedText,
    attention: Array,
    placeholders: re.Pattern[str],
) -> str:
    """Return the target's text with all of the source's placeholders.

    One that is missing takes the place of the word that attends to it most, among those that attend
    to nothing more; if there is none, it is put at the end.

    attention: [target tokens, source tokens]
    """
    wanted, present = (words_of(text.text, placeholders) for text in (source, target))
    missing = _missing(source.text, wanted, target.text, present)
    if not missing:
        return target.text
    source_words = _words_around(source.text, wanted)
    target_words = _words_around(target.text, present)
    matrix = word_attention(attention, target, source, target_words, source_words)
    places = _Places(target.text, target_words, matrix, kept=_texts(source.text, wanted))
    for placeholder in missing:
        places.put(
            source.text[placeholder.start : placeholder.end], source_words.index(placeholder)
        )
    return places.text


class _Places:
    """The target's words, each of which can make room once.

    matrix: [target words, source words]
    """

    def __init__(self, text: str, words: list[Span], matrix: Array, kept: list[str]) -> None:
        self._text, self._words, self._matrix = text, words, matrix
        self._best = matrix.argmax(axis=1).tolist()
        self._free = {i for i, word in enumerate(_texts(text, words)) if word not in kept}
        self._replaced: list[tuple[Span, str]] = []
        self._appended: list[str] = []

    @property
    def text(self) -> str:
        text = self._text
        for span, placeholder in sorted(self._replaced, reverse=True):
            text = text[: span.start] + placeholder + text[span.end :]
        return " ".join(filter(None, [text, *self._appended]))

    def put(self, placeholder: str, source_word: int) -> None:
        column = self._matrix[:, source_word]
        attending = {i for i in self._free if self._best[i] == source_word and column[i] > 0}
        if not attending:
            self._appended.append(placeholder)
            return
        most = max(sorted(attending), key=column.__getitem__)
        run = self._run(most, attending)
        self._free -= {*run}
        place = Span(self._words[run[0]].start, self._words[run[-1]].end)
        self._replaced.append((place, placeholder))

    def _run(self, word: int, attending: set[int]) -> range:
        """Return the word and those next to it, without a space between, that attend to the same:
        what has become of a placeholder, as ``<<nom>>`` of ``<<name>>``.
        """
        first = last = word
        while first - 1 in attending and self._touches(first - 1):
            first -= 1
        while last + 1 in attending and self._touches(last):
            last += 1
        return range(first, last + 1)

    def _touches(self, word: int) -> bool:
        """Check that the next word follows without a space."""
        return self._words[word].end == self._words[word + 1].start


def _missing(source: str, wanted: list[Span], target: str, present: list[Span]) -> list[Span]:
    """Return the source's placeholders that the target has not, or not as often: then the last
    ones.
    """
    left = Counter(_texts(target, present))
    missing = []
    for span, placeholder in zip(wanted, _texts(source, wanted), strict=True):
        left[placeholder] -= 1
        if left[placeholder] < 0:
            missing.append(span)
    return missing


def _words_around(text: str, placeholders: list[Span]) -> list[Span]:
    """Return placeholders, and the bare words and the punctuation between them."""
    words, start = [], 0
    for placeholder in placeholders:
        words += _bare_words(text, start, placeholder.start)
        words.append(placeholder)
        start = placeholder.end
    return words + _bare_words(text, start, len(text))


def _bare_words(text: str, start: int, end: int) -> list[Span]:
    return [Span(*match.span()) for match in BARE_WORD.finditer(text, start, end)]


def _texts(text: str, spans: Iterable[Span]) -> list[str]:
    return [text[span.start : span.end] for span in spans]


def _spaced(before: bytes, piece: bytes, word: str) -> bytes:
    """Return the word with the space that its piece began with, or one where a special token had
    none.
    """
    space = piece[: len(piece) - len(piece.lstrip())]
    if not piece and before and not before[-1:].isspace():
        space = b" "
    return space + word.encode()

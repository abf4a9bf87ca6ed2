"""Aligns the words of a translation with those of its source, by attention weights.

Attention comes as one row per target token over all source tokens. Tokens are the bytes that they
stand for; special tokens stand for none and have no place in the text, so that attention to them is
left out.
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from serving.text.spans import Span

Array = np.ndarray[Any, np.dtype[Any]]
# As str.split and Pharaoh's format count words: punctuation belongs to the word before it.
WORD = re.compile(r"\S+")
# As papers draw alignments: punctuation, and what is elided before a word (l', qu'), is a word.
DRAWN_WORD = re.compile(r"(?:[cdjlmnst]|\w*qu)['’](?=\w)|\w(?:\S*\w)?|[^\w\s]+", re.IGNORECASE)


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


def map_tokens_to_text(tokens: TokenizedText, text: str) -> TokenizedText:
    """Return tokens with their spans in the text that was tokenized, which the tokenizer may have
    changed.
    """
    if text == tokens.text:
        return tokens
    places = [0] * (len(tokens.text) + 1)
    for start, other, size in SequenceMatcher(None, text, tokens.text, False).get_matching_blocks():
        for offset in range(size):
            places[other + offset] = start + offset
            places[other + offset + 1] = start + offset + 1
    places = [*accumulate(places, max)]
    spans = (Span(places[span.start], places[span.end]) for span in tokens.spans)
    return TokenizedText(text, tuple(spans))


def find_words(text: str, pattern: re.Pattern[str] = WORD) -> list[Span]:
    """Return the spans of the words; by default word i is ``text.split()[i]``."""
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
    target_words = find_words(target.text) if target_words is None else target_words
    source_words = find_words(source.text) if source_words is None else source_words
    rows = target_word_weights(target, target_words)
    matrix: Array = rows @ sum_over_source_words(attention, source, source_words)
    return matrix


def target_word_weights(target: TokenizedText, words: Sequence[Span]) -> Array:
    """Return the weights of tokens in the mean of each word: f64 [words, target tokens]."""
    rows = overlap_shares(words, target.spans)
    rows /= np.maximum(rows.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return rows


def sum_over_source_words(attention: Array, source: TokenizedText, words: Sequence[Span]) -> Array:
    """Sum the attention over each source word's tokens.

    attention [target tokens, source tokens] -> f64 [target tokens, source words]
    """
    summed: Array = attention.astype(np.float64) @ overlap_shares(words, source.spans).T
    return summed


def link_words(matrix: Array) -> list[Link]:
    """Link each target word with the source word it attends to most, the first of equals; not a
    target word that attends to no word at all. By source word, then by target word.
    """
    if not matrix.size:
        return []
    best = matrix.argmax(axis=1).tolist()
    attends = (matrix.max(axis=1) > 0).tolist()
    return sorted(Link(best[i], i) for i in range(len(matrix)) if attends[i])


def format_pharaoh(links: Iterable[Link]) -> str:
    """Write links as fast_align and Moses do, ``0-0 1-2``: source and target word of each."""
    return " ".join(f"{link.source}-{link.target}" for link in links)


def overlap_shares(words: Sequence[Span], tokens: Sequence[Span]) -> Array:
    """Return the share of each token that is in each word, of what is in any word.

    The result is [words, tokens], f64.
    """
    word, token = (np.array(spans, np.int64).reshape(-1, 2) for spans in (words, tokens))
    starts = np.maximum(word[:, None, 0], token[None, :, 0])
    ends = np.minimum(word[:, None, 1], token[None, :, 1])
    common = np.maximum(ends - starts, 0).astype(np.float64)
    shares: Array = common / np.maximum(common.sum(axis=0), 1)
    return shares

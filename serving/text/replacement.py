"""Copies from the source what a translation lacks, to where attention says: words for unknown
tokens, and missing placeholders.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from serving.text.alignment import (
    Array,
    TokenizedText,
    find_words,
    sum_over_source_words,
    word_attention,
)
from serving.text.spans import Span

BARE_WORD = re.compile(r"\w(?:\S*\w)?|[^\w\s]+")  # punctuation around a word is a word of its own


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
    words = find_words(source.text, BARE_WORD)
    by_word = sum_over_source_words(attention, source, words)
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
            replaced.append(_with_space_before(b"".join(replaced), piece, copied))
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
    source_placeholders, target_placeholders = (
        find_words(text.text, placeholders) for text in (source, target)
    )
    missing = _find_missing(source.text, source_placeholders, target.text, target_placeholders)
    if not missing:
        return target.text
    source_words = _words_between(source.text, source_placeholders)
    target_words = _words_between(target.text, target_placeholders)
    matrix = word_attention(attention, target, source, target_words, source_words)
    places = _TargetWords(
        target.text,
        target_words,
        matrix,
        placeholder_texts=_slice_texts(source.text, source_placeholders),
    )
    for placeholder in missing:
        places.put(
            source.text[placeholder.start : placeholder.end], source_words.index(placeholder)
        )
    return places.text


class _TargetWords:
    """The target's words, each of which can make room once.

    matrix: [target words, source words]
    """

    def __init__(
        self, text: str, words: list[Span], matrix: Array, placeholder_texts: list[str]
    ) -> None:
        self._text, self._words, self._matrix = text, words, matrix
        self._best = matrix.argmax(axis=1).tolist()
        self._free = {
            i for i, word in enumerate(_slice_texts(text, words)) if word not in placeholder_texts
        }
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


def _find_missing(
    source: str, placeholders: list[Span], target: str, present: list[Span]
) -> list[Span]:
    """Return the source's placeholders that the target has not, or not as often: then the last
    ones.
    """
    num_unused = Counter(_slice_texts(target, present))
    missing = []
    for span, placeholder in zip(placeholders, _slice_texts(source, placeholders), strict=True):
        num_unused[placeholder] -= 1
        if num_unused[placeholder] < 0:
            missing.append(span)
    return missing


def _words_between(text: str, placeholders: list[Span]) -> list[Span]:
    """Return placeholders, and the bare words and the punctuation between them."""
    words, start = [], 0
    for placeholder in placeholders:
        words += _bare_words(text, start, placeholder.start)
        words.append(placeholder)
        start = placeholder.end
    return words + _bare_words(text, start, len(text))


def _bare_words(text: str, start: int, end: int) -> list[Span]:
    return [Span(*match.span()) for match in BARE_WORD.finditer(text, start, end)]


def _slice_texts(text: str, spans: Iterable[Span]) -> list[str]:
    return [text[span.start : span.end] for span in spans]


def _with_space_before(before: bytes, piece: bytes, word: str) -> bytes:
    """Return the word with the space that its piece began with, or one where a special token had
    none.
    """
    space = piece[: len(piece) - len(piece.lstrip())]
    if not piece and before and not before[-1:].isspace():
        space = b" "
    return space + word.encode()

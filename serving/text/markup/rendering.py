"""Writes the translation of a segment with its marks, and tells which word came of which."""

import re
from collections.abc import Sequence
from dataclasses import replace

from serving.text.alignment import Array, Span, TokenizedText, over_text
from serving.text.markup.cutting import MarkedSegment
from serving.text.markup.numbers import put_right_numbers
from serving.text.markup.placing import place
from serving.text.markup.tokens import Role, Token
from serving.text.markup.translated import TargetWord, TranslatedWords
from serving.text.markup.tree import mark_tree
from serving.text.markup.typography import write_as_in
from serving.text.markup.words import is_wordy, source_words
from serving.text.markup.writing import Written, write

_BRACKETS = ("(", ")")
_OPENING = frozenset("\"'“«‘([{¿¡-–—")


class MarkedTranslation:
    """Holds the words of a segment's translation, with what the segment keeps.

    source: the segment as the model's tokenizer has it.
    attention: [target tokens, source tokens]; None for models that have none.
    """

    def __init__(
        self,
        segment: MarkedSegment,
        target: TokenizedText,
        source: TokenizedText,
        attention: Array | None,
    ) -> None:
        if attention is not None and _lacks_brackets(target.text, segment):
            segment = _with_brackets_as_marks(segment)
        self._segment = segment
        self._source_words = source_words(segment.tokens)
        over = over_text(source, segment.text)
        self._translated = TranslatedWords(target, over, attention, self._source_words)
        self._translated.put_back_kept()
        if any(token.text in _BRACKETS for token in segment.tokens if token.role is Role.OPEN):
            words = self._translated.words
            self._translated.remove([word for word in words if word.text in _BRACKETS])
        put_right_numbers(self._translated, self._source_words.numbers)
        self._translated.words = write_as_in(segment.tokens, self._translated.words)

    def text(self) -> str:
        """Return it as it is written, with the segment's tags."""
        table = self._segment.references
        words = self._translated.words
        texts = (self._cased(word.text).translate(table) for word in words)
        written = tuple(
            text if word.raw is None else word.raw for word, text in zip(words, texts, strict=True)
        )
        root = mark_tree(self._segment.tokens, self._source_words.before)
        place(root, self._translated.origins(), _line_starts(words))
        return write(root, Written(written, (*(word.gap.translate(table) for word in words), "")))

    def words(self) -> tuple[TokenizedText, TokenizedText, Array]:
        """Return both sides without tags, in the words that they are written with, and how much of
        the target's came of the source's: [target words, source words].
        """
        pieces = [(word.gap, word.raw or self._cased(word.text)) for word in self._translated.words]
        spans, end = [], 0
        for gap, piece in pieces:
            spans.append(Span(end + len(gap), end + len(gap) + len(piece)))
            end = spans[-1].end
        text = "".join(gap + piece for gap, piece in pieces)
        target = TokenizedText(text, tuple(spans))
        return target, self._source(), self._translated.origins().matrix

    def _source(self) -> TokenizedText:
        """Return the segment with what it keeps as it is written, and where its words are."""
        text, places = "", []  # of what is read, where it is in the text
        for token in self._segment.tokens:
            is_text = token.role in (Role.TEXT, Role.LINE_BREAK)
            places += [len(text) + offset * is_text for offset in range(len(token.text))]
            if token.text:
                text += self._cased(token.text) if is_text else token.raw
        places.append(len(text))
        spans = (Span(places[span.start], places[span.end]) for span in self._source_words.spans)
        return TokenizedText(text, tuple(spans))

    def _cased(self, text: str) -> str:
        return text.upper() if self._segment.is_in_capitals else text


def _lacks_brackets(translation: str, segment: MarkedSegment) -> bool:
    """Say if a translation has other brackets than a segment whose brackets are pairs."""
    text = "".join(token.text for token in segment.tokens if token.role is Role.TEXT)
    num_pairs = text.count("(")
    counts = [translation.count("("), translation.count(")")]
    return num_pairs == text.count(")") and counts != [num_pairs, num_pairs]


def _with_brackets_as_marks(segment: MarkedSegment) -> MarkedSegment:
    """Return the segment with its round brackets as a pair of tags, which are put around the words
    that came of those between them.
    """
    tokens: list[Token] = []
    for token in segment.tokens:
        if token.role is not Role.TEXT or token.raw != token.text:
            tokens.append(token)
            continue
        for part in re.split(r"([()])", token.text):
            role = {"(": Role.OPEN, ")": Role.CLOSE}.get(part, Role.TEXT)
            if part:
                tokens.append(Token(role, part, part, name=")" * (role is not Role.TEXT)))
    return replace(segment, tokens=tuple(tokens))


def _line_starts(words: Sequence[TargetWord]) -> list[int]:
    """Return the words that may begin a line."""
    return [
        number
        for number, word in enumerate(words)
        if word.gap and (word.raw or is_wordy(word.text) or word.text in _OPENING)
    ]

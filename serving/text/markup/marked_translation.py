"""Writes the translation of a segment with its marks, and tells which word came of which."""

import re
from collections.abc import Sequence
from dataclasses import replace

from serving.text.alignment import Array, TokenizedText, map_tokens_to_text, overlap_shares
from serving.text.markup.number_correction import correct_numbers
from serving.text.markup.punctuation import (
    PairedMarks,
    inner_marks,
    inner_runs,
    loses_runs,
    write_dashes,
    write_end,
    write_inner_runs,
)
from serving.text.markup.segments import MarkedSegment, with_pairs_as_tags
from serving.text.markup.tag_placement import place_tags
from serving.text.markup.tag_tree import TargetWords, read_tag_tree, write_tags
from serving.text.markup.tokens import Role, Token
from serving.text.markup.translated_words import (
    TargetWord,
    TranslatedWords,
    has_letters_or_digits,
    read_source_words,
)
from serving.text.spans import Span

# A stop that a model wrote for a run of marks which is a point now.
_STOP_AFTER_LOST_RUN = re.compile(r"(\.\.\.|…|[!?])\.(?=\W*\Z)")
_LEAST_ALIGNMENT = 0.1  # of a word of the source that something came of
_OPENING = frozenset("\"'“«‘([{¿¡-–—")


class MarkedTranslation:
    """A segment's translation in words, with the segment's numbers, punctuation and
    non-translatable text.

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
        paired = PairedMarks.compare(segment.tokens, target.text)
        has_lost_runs = loses_runs(segment.tokens, target.text)
        if paired.lost or has_lost_runs:
            segment = _with_lost_as_tags(segment, paired.lost, has_lost_runs)
        self._segment, self._target, self._has_lost_runs = segment, target, has_lost_runs
        self._has_attention = attention is not None
        self._source_words = read_source_words(segment.tokens)
        over = map_tokens_to_text(source, segment.text)
        self._translated = TranslatedWords(target, over, attention, self._source_words)
        self._translated.restore_non_translatables()
        words = self._translated.words
        self._translated.remove([word for word in words if paired.is_replaced(word)])
        if has_lost_runs:
            self._translated.remove(inner_marks(self._translated.words))
        correct_numbers(self._translated, self._source_words.numbers)
        words = self._translated.words
        write_dashes(segment.tokens, words)
        paired.write_into(words)
        write_inner_runs(segment.tokens, words)
        write_end(segment.tokens, words)

    def text(self) -> str:
        """Return the translation with the segment's tags."""
        table = self._segment.references
        words = self._translated.words
        texts = (self._restore_case(word.text).translate(table) for word in words)
        written = tuple(
            text if word.raw is None else word.raw for word, text in zip(words, texts, strict=True)
        )
        root = read_tag_tree(self._segment.tokens, self._source_words.before)
        place_tags(root, self._translated.word_alignment(), _line_starts(words))
        text = write_tags(
            root, TargetWords(written, (*(word.gap.translate(table) for word in words), ""))
        )
        return _STOP_AFTER_LOST_RUN.sub(r"\1", text) if self._has_lost_runs else text

    def translated_text(self) -> str:
        """Return the words that are not copied from the source, with spaces between."""
        return " ".join(word.text for word in self._translated.words if word.raw is None)

    def lacks_most_words(self) -> bool:
        """Return whether nothing came of half of the source's words or more, numbers and
        non-translatable text aside; False for a model without attention.
        """
        if not self._has_attention:
            return False
        source, alignment = self._source_words, self._translated.word_alignment()
        copied = source.non_translatable.keys() | source.numbers.keys()
        words = [n for n, is_word in enumerate(source.is_word) if is_word and n not in copied]
        rows = [
            word.raw is None and has_letters_or_digits(word.text) for word in self._translated.words
        ]
        best = alignment.matrix[rows][:, words].max(axis=0, initial=0.0)
        return len(words) > 0 and (best < _LEAST_ALIGNMENT).sum() * 2 >= len(words)

    def word_alignment(self) -> tuple[TokenizedText, TokenizedText, Array]:
        """Return the translation and its source without tags, as they are written, and how much
        the target's words came of the source's: [target words, source words].
        """
        return (
            self.tokenized_text(),
            self._tokenized_source(),
            self._translated.word_alignment().matrix,
        )

    def tokenized_text(self) -> TokenizedText:
        """Return the translation without tags, as it is written, and its words."""
        pieces = [
            (word.gap, word.raw or self._restore_case(word.text)) for word in self._translated.words
        ]
        spans, end = [], 0
        for gap, piece in pieces:
            spans.append(Span(end + len(gap), end + len(gap) + len(piece)))
            end = spans[-1].end
        text = "".join(gap + piece for gap, piece in pieces)
        return TokenizedText(text, tuple(spans))

    def token_shares(self) -> Array:
        """Return how much of each of the model's tokens is in each of the written words: [words,
        tokens]. Nothing is in words that were copied from the source.
        """
        words = self._translated.words
        spans = [Span(0, 0) if word.raw is not None else word.span for word in words]
        return overlap_shares(spans, self._target.spans)

    def _tokenized_source(self) -> TokenizedText:
        """Return the segment without tags, as it is written, and its words."""
        text, places = "", []  # where each character that a model reads is in the text
        for token in self._segment.tokens:
            is_text = token.role in (Role.TEXT, Role.LINE_BREAK)
            places += [len(text) + offset * is_text for offset in range(len(token.text))]
            if token.text:
                text += self._restore_case(token.text) if is_text else token.raw
        places.append(len(text))
        spans = (Span(places[span.start], places[span.end]) for span in self._source_words.spans)
        return TokenizedText(text, tuple(spans))

    def _restore_case(self, text: str) -> str:
        return text.upper() if self._segment.is_in_capitals else text


def _with_lost_as_tags(
    segment: MarkedSegment, lost_pairs: frozenset[int], has_lost_runs: bool
) -> MarkedSegment:
    """Return the segment with brackets and quotation marks that a translation lost as tags around
    the words that came of those between them, and lost runs of marks as points.
    """
    tokens = with_pairs_as_tags(segment.tokens, lost_pairs)
    if has_lost_runs:
        runs = {id(token) for token in inner_runs(tokens)}
        tokens = tuple(
            Token(Role.POINT, token.raw, token.text) if id(token) in runs else token
            for token in tokens
        )
    return replace(segment, tokens=tokens)


def _line_starts(words: Sequence[TargetWord]) -> list[int]:
    """Return the words that may begin a line."""
    return [
        number
        for number, word in enumerate(words)
        if word.gap and (word.raw or has_letters_or_digits(word.text) or word.text in _OPENING)
    ]

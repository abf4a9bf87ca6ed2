"""Writes the translation of a segment with its marks, and tells which word came of which."""

from serving.text.alignment import Array, Span, TokenizedText, over_text
from serving.text.markup.cutting import MarkedSegment
from serving.text.markup.numbers import put_right_numbers
from serving.text.markup.placing import place
from serving.text.markup.tokens import Role
from serving.text.markup.translated import TranslatedWords
from serving.text.markup.tree import mark_tree
from serving.text.markup.words import source_words
from serving.text.markup.writing import Written, write


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
        self._segment = segment
        self._source_words = source_words(segment.tokens)
        over = over_text(source, segment.text)
        self._translated = TranslatedWords(target, over, attention, self._source_words)
        self._translated.put_back_kept()
        put_right_numbers(self._translated, self._source_words.numbers)

    def text(self) -> str:
        """Return it as it is written, with the segment's tags."""
        table = self._segment.references
        words = self._translated.words
        texts = (self._cased(word.text).translate(table) for word in words)
        written = tuple(
            text if word.raw is None else word.raw for word, text in zip(words, texts, strict=True)
        )
        root = mark_tree(self._segment.tokens, self._source_words.before)
        place(root, self._translated.origins())
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
            is_text = token.role is Role.TEXT
            places += [len(text) + offset * is_text for offset in range(len(token.text))]
            if token.text:
                text += self._cased(token.text) if is_text else token.raw
        places.append(len(text))
        spans = (Span(places[span.start], places[span.end]) for span in self._source_words.spans)
        return TokenizedText(text, tuple(spans))

    def _cased(self, text: str) -> str:
        return text.upper() if self._segment.is_in_capitals else text

"""Writes the translation of a segment with its marks."""

from difflib import SequenceMatcher
from itertools import accumulate

from serving.text.alignment import Array, Span, TokenizedText
from serving.text.markup.cutting import MarkedSegment
from serving.text.markup.numbers import put_right_numbers
from serving.text.markup.placing import place
from serving.text.markup.translated import TargetWord, TranslatedWords
from serving.text.markup.tree import mark_tree
from serving.text.markup.words import source_words
from serving.text.markup.writing import Written, write


def marked_text(
    segment: MarkedSegment, target: TokenizedText, source: TokenizedText, attention: Array | None
) -> str:
    """Return the target's text with what the segment keeps, and with its tags.

    source: the segment as the model's tokenizer has it.
    attention: [target tokens, source tokens]; None for models that have none.
    """
    if segment.is_one_text:
        return target.text.strip().translate(segment.references)
    words = source_words(segment.tokens)
    translated = TranslatedWords(target, _over(segment.text, source), attention, words)
    translated.put_back_kept()
    put_right_numbers(translated, words.numbers)
    root = mark_tree(segment.tokens, words.before)
    place(root, translated.origins())
    return write(root, _written(translated.words, segment))


def _written(words: list[TargetWord], segment: MarkedSegment) -> Written:
    table = segment.references
    texts = (
        word.raw if word.raw is not None else _cased(word.text, segment).translate(table)
        for word in words
    )
    return Written(tuple(texts), (*(word.gap.translate(table) for word in words), ""))


def _cased(text: str, segment: MarkedSegment) -> str:
    return text.upper() if segment.is_in_capitals else text


def _over(text: str, source: TokenizedText) -> TokenizedText:
    """Return the source's tokens over the text, where a tokenizer changes what it reads."""
    if text == source.text:
        return source
    places = [0] * (len(source.text) + 1)
    for own, other, size in SequenceMatcher(None, text, source.text, False).get_matching_blocks():
        for offset in range(size):
            places[other + offset] = own + offset
            places[other + offset + 1] = own + offset + 1
    places = [*accumulate(places, max)]
    spans = (Span(places[span.start], places[span.end]) for span in source.spans)
    return TokenizedText(text, tuple(spans))

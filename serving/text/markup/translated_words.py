"""Splits a translation into words, aligns them with those of its source, and puts non-translatable
text back among them.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from serving.text.alignment import Array, TokenizedText, word_attention
from serving.text.end_marks import SENTENCE_END_MARKS
from serving.text.markup.model_placeholders import MODEL_PLACEHOLDER, WRITTEN_MODEL_PLACEHOLDER
from serving.text.markup.tag_placement import WordAlignment
from serving.text.markup.tokens import Role, Token, with_spans
from serving.text.spans import Span

_LEAST = 1e-6  # of an alignment, so that no column sums to 0
_NOWHERE = Span(0, 0)
# Letters with figures; the group matches a small letter, after which no abbreviation has any.
_FIGURES_AFTER_LETTERS = re.compile(r"([a-zà-ÿ])\d|[^\W\d]\d")
_LATIN_1_SIGNS = frozenset("¡¢£¤¥¦§¨©¬®¯±´¶·¸×÷")
_FIGURES = re.compile(r"\d+")
_LETTER_OR_DIGIT = re.compile(r"[^\W_\u0e00-\u0eff\u3000-\u9fff]|%")
_WITHIN_PLACEHOLDER = re.compile(r"[\s.-]")
_ENDS_SENTENCE = frozenset(SENTENCE_END_MARKS + ":;")
# Marks on letters are no letters to `re`: all characters of these scripts are taken for letters.
_LETTER = (
    r"[\w\u0300-\u036F\u0483-\u0489\u0591-\u05C7\u0610-\u065F\u06D6-\u06ED\u0900-\u0DFF\u0E00-\u0EFF"
    r"\u0F00-\u109F\u1780-\u17FF\u200C\u200D]"
)
_ALONE = r"[\u3040-\u30FF\u3400-\u4DBF\u4E00-\u9FFF]"  # kana and Han: each is a word
# What is elided before a word (l', qu'), a character that is a word, a word, punctuation.
_WORD = re.compile(
    rf"(?:[cdjlmnst]|\w*qu)['’](?=\w)|{_ALONE}|(?:(?!{_ALONE}){_LETTER})+"
    rf"(?:[-.'’,](?=\w)(?:(?!{_ALONE}){_LETTER})+)*|[^\w\s]",
    re.IGNORECASE,
)
_NUMBER_AT_TAG = re.compile(
    r"(?<!\w)\d[\d.,]*(?:-\0+|\0+-\0*)(?=[^\W\d_])|(?<=[^\W\d_])(?:-\0+|\0+-\0*)\d[\d.,]*(?!\w)"
)


@dataclass(slots=True, eq=False)
class TargetWord:
    """A word or a punctuation mark of a translation.

    gap: the space before it.
    alignment: how much it came of each of the source's words.
    raw: how it is written, if it is not the model's.
    span: of the model's text; empty for a word that is not from there.
    """

    text: str
    gap: str
    alignment: Array
    raw: str | None = None
    span: Span = _NOWHERE


@dataclass(frozen=True, slots=True)
class SourceWords:
    """The words of a segment, which end at its tags.

    before: of each token of the segment, how many words end before it begins; and of all.
    translated: the text that a model translates.
    non_translatable: the tokens that are not translated, by the numbers of their words.
    numbers: the tokens that are numbers, likewise.
    seams: numbers with the hyphen at which a tag separates them from a word: "1-" of
        1-<i>London</i>.
    """

    spans: tuple[Span, ...]
    is_word: tuple[bool, ...]
    before: tuple[int, ...]
    translated: str
    non_translatable: dict[int, Token]
    numbers: dict[int, Token]
    seams: frozenset[str] = frozenset()


class TranslatedWords:
    """The words of a translation.

    attention: [target tokens, source tokens]; None for a model without: then words are taken to
        stand in the order of the source's.
    """

    def __init__(
        self,
        target: TokenizedText,
        source: TokenizedText,
        attention: Array | None,
        source_words: SourceWords,
    ) -> None:
        text = target.text
        copied = [
            Span(*match.span())
            for match in WRITTEN_MODEL_PLACEHOLDER.finditer(text)
            if source_words.non_translatable and match.group() not in source_words.translated
        ]
        spans = [*_split_at_seams(source_words.seams, text, find_words_and_marks(text, copied))]
        matrix = (
            _align_in_order(spans, source_words.spans)
            if attention is None
            else _normalize_sinkhorn(
                word_attention(attention, target, source, spans, source_words.spans)
            )
        )
        ends = [0, *(span.end for span in spans)]
        self.words = [
            TargetWord(text[span.start : span.end], text[end : span.start], row, span=span)
            for span, end, row in zip(spans, ends, matrix, strict=False)
        ]
        self._source = source_words

    def restore_non_translatables(self) -> None:
        """Put each non-translatable text once where its placeholder stands, or where words came of
        it. Placeholders that the model has made up are removed.
        """
        missing = [
            number
            for number in self._source.non_translatable
            if not self._put_at_placeholder(number)
        ]
        made_up = [word for word in self.words if self._is_made_up(word, missing)]
        for number in missing:
            best = max(made_up, key=lambda word: word.alignment[number], default=None)
            if best is not None:
                made_up.remove(best)
            self._put_non_translatable(number, best or self.make_room(number))
        self.remove(made_up)
        self._remove_broken_characters()
        self._remove_invented_figures()
        if self.words:
            self.words[0].gap = ""

    def _is_made_up(self, word: TargetWord, missing: Collection[int]) -> bool:
        """Return whether a word is a placeholder that the model made up, or what it made of a
        missing one: a part of it, or a word with its figures, as X1.
        """
        if word.raw is not None or word.text in self._source.translated:
            return False
        figures = {self._source.non_translatable[number].text.strip("%") for number in missing}
        figures -= {token.text for token in self._source.numbers.values()}
        figures_of_word = _FIGURES.search(word.text)
        is_of_missing = figures_of_word is not None and figures_of_word.group() in figures
        is_placeholder = (
            WRITTEN_MODEL_PLACEHOLDER.fullmatch(word.text) or word.text == MODEL_PLACEHOLDER[0]
        )
        return is_of_missing or bool(is_placeholder)

    def _remove_broken_characters(self) -> None:
        """Remove what stands for bytes of a character that a model began and did not end, and signs
        of Latin-1 within words, which are such bytes, too.
        """
        for word in [*self.words]:
            word.text = word.text.replace("\ufffd", "") if word.raw is None else word.text
        within = [
            word
            for word, following in pairwise(self.words)
            if word.raw is None and not (word.gap or following.gap) and word.text in _LATIN_1_SIGNS
        ]
        self.remove([*within, *(word for word in self.words if not (word.text or word.raw))])

    def _remove_invented_figures(self) -> None:
        """Remove figures that a model wrote after letters, as L00, where it should have copied;
        "CO2" may be carbon dioxide.
        """
        for word in [*self.words]:
            figures = _FIGURES_AFTER_LETTERS.search(word.text) if word.raw is None else None
            if figures and (
                figures[1] or self.came_of_non_translatable(word, self._source.numbers)
            ):
                word.text = re.sub(r"\d", "", word.text)
                if len(word.text) < 2:
                    self.remove([word])

    def remove(self, words: Sequence[TargetWord]) -> None:
        """Remove words; what follows one keeps the space before it."""
        remaining: list[TargetWord] = []
        gap = ""
        for word in self.words:
            if word in words:
                gap = gap or word.gap
            else:
                word.gap, gap = word.gap or gap * has_letters_or_digits(word.text), ""
                remaining.append(word)
        self.words = remaining

    def came_of_non_translatable(self, word: TargetWord, numbers: Collection[int]) -> bool:
        """Return whether a word came of a number or a non-translatable text more than of any other
        word.

        numbers: the words of the source that are numbers.
        """
        if not word.alignment.size:  # of a source of nothing but quotation marks
            return False
        best = int(word.alignment.argmax())
        return best in numbers or best in self._source.non_translatable

    def word_alignment(self) -> WordAlignment:
        width = len(self._source.spans)
        rows = [word.alignment for word in self.words]
        return WordAlignment(
            np.array(rows, np.float64).reshape(len(rows), width),
            np.array(self._source.is_word, bool),
            np.array(
                [word.raw is not None or has_letters_or_digits(word.text) for word in self.words],
                bool,
            ),
        )

    def _put_at_placeholder(self, number: int) -> bool:
        """Put a non-translatable text where its placeholder stands; return whether there is one."""
        placeholder = self._source.non_translatable[number].text
        copies = [
            word
            for word in self.words
            if word.raw is None and _WITHIN_PLACEHOLDER.sub("", word.text) == placeholder
        ]
        if copies:
            best = max(copies, key=lambda word: word.alignment[number])
            self.remove([word for word in copies if word is not best])
            self._put_non_translatable(number, best)
        return bool(copies)

    def _put_non_translatable(self, number: int, word: TargetWord) -> None:
        word.raw = self._source.non_translatable[number].translation
        word.alignment = np.eye(len(self._source.spans))[number]
        place = self.words.index(word)
        for before, after in pairwise(self.words[max(place - 1, 0) : place + 2]):
            if not after.gap and _LETTER_OR_DIGIT.match(after.text) and before.text[-1:].isalnum():
                after.gap = " "

    def make_room(self, number: int) -> TargetWord:
        """Return the word that came most of one of the source's, merged with those beside it that
        came of it, too; a new word if there is none.
        """
        for place in sorted(
            range(len(self.words)), key=lambda place: -self.words[place].alignment[number]
        ):
            if self._came_of(place, number):
                return self._merge_words(place, number)
        return self._insert_word(number)

    def _came_of(self, place: int, number: int) -> bool:
        word = self.words[place]
        is_free = word.raw is None and has_letters_or_digits(word.text)
        return is_free and word.alignment[number] > 0 and word.alignment.argmax() == number

    def _merge_words(self, place: int, number: int) -> TargetWord:
        first, last = place, place + 1
        while (
            last < len(self.words)
            and self._follows_without_space(last)
            and self._came_of(last, number)
        ):
            last += 1
        while first and self._follows_without_space(first) and self._came_of(first - 1, number):
            first -= 1
        word = self.words[first]
        self.words[first + 1 : last] = []
        return word

    def _follows_without_space(self, place: int) -> bool:
        return not self.words[place].gap

    def _insert_word(self, number: int) -> TargetWord:
        place = self._place_for(number)
        is_first = place == 0
        follower = self.words[place] if place < len(self.words) else None
        gap = "" if is_first else " "
        if follower is not None and (
            is_first or has_letters_or_digits(follower.text) or follower.raw
        ):
            follower.gap = " "
        word = TargetWord("", gap, np.zeros(len(self._source.spans)))
        self.words.insert(place, word)
        return word

    def _place_for(self, number: int) -> int:
        """Return the place before the word that came of the source's next words, else the last
        before the sentence's end.
        """
        for following in range(number + 1, len(self._source.spans)):
            column = [word.alignment[following] for word in self.words]
            if self._source.is_word[following] and column and max(column) > 0:
                return int(np.argmax(column))
        place = len(self.words)
        while place and self.words[place - 1].text in _ENDS_SENTENCE:
            place -= 1
        return place


def _normalize_sinkhorn(matrix: Array) -> Array:
    """Return the matrix after two rounds of Sinkhorn's normalisation, which makes rows and columns
    sum to 1.

    Attention gives an article to its noun as well; here it goes to the article, which nothing else
    came of. Of tags around words 90 % instead of 84 % came to the right words with a Transformer,
    83 % instead of 61 % with the attention of an RNN.
    """
    matrix = np.maximum(matrix, _LEAST)
    for _ in range(2):
        matrix = matrix / matrix.sum(axis=0, keepdims=True)
        matrix = matrix / matrix.sum(axis=1, keepdims=True)
    return matrix


def _align_in_order(target: Sequence[Span], source: Sequence[Span]) -> Array:
    """Return how much words share with each other if both texts are stretched to one length.

    The result is [target words, source words]; rows sum to 1.
    """
    target_borders, source_borders = (
        np.linspace(0, 1, len(spans) + 1) for spans in (target, source)
    )
    ends = np.minimum(target_borders[1:, None], source_borders[None, 1:])
    starts = np.maximum(target_borders[:-1, None], source_borders[None, :-1])
    shares: Array = np.maximum(ends - starts, 0) * len(target)
    return shares


def read_source_words(tokens: Sequence[Token]) -> SourceWords:
    spans: list[Span] = []
    is_word: list[bool] = []
    before: list[int] = []
    non_translatable: dict[int, Token] = {}
    numbers: dict[int, Token] = {}
    text, start = "", 0

    def end_text() -> None:
        for span in find_words_and_marks(text):
            spans.append(Span(start + span.start, start + span.end))
            is_word.append(has_letters_or_digits(text[span.start : span.end]))

    for token, place in with_spans(tokens):
        if token.role is Role.TEXT:
            before.append(len(spans))  # not used of text
            text += token.text
            continue
        end_text()
        before.append(len(spans))
        if token.role in (Role.NON_TRANSLATABLE, Role.NUMBER):
            (non_translatable if token.role is Role.NON_TRANSLATABLE else numbers)[len(spans)] = (
                token
            )
            spans.append(place)
            is_word.append(True)
        text, start = "", place.end
    end_text()
    translated = "".join(token.text for token in tokens if token.role is Role.TEXT)
    return SourceWords(
        tuple(spans),
        tuple(is_word),
        (*before, len(spans)),
        translated,
        non_translatable,
        numbers,
        _seams(tokens),
    )


def _seams(tokens: Sequence[Token]) -> frozenset[str]:
    text = "".join(
        "\0" if token.role in (Role.OPEN, Role.CLOSE) else token.text for token in tokens
    )
    return frozenset(seam.replace("\0", "") for seam in _NUMBER_AT_TAG.findall(text))


def _split_at_seams(seams: Iterable[str], text: str, words: Iterable[Span]) -> Iterator[Span]:
    """Yield the words, those with a number and a hyphen of the source cut beside the hyphen, so
    that a tag finds a place there.
    """
    for word in words:
        begun = next((seam for seam in seams if text.startswith(seam, *word)), "")
        ended = next((seam for seam in seams if text.endswith(seam, *word)), "")
        if begun.endswith("-") and len(begun) < word.end - word.start:
            hyphen = word.start + len(begun) - 1
        elif ended.startswith("-") and len(ended) < word.end - word.start:
            hyphen = word.end - len(ended)
        else:
            yield word
            continue
        yield Span(word.start, hyphen)
        yield Span(hyphen, hyphen + 1)
        yield Span(hyphen + 1, word.end)


def find_words_and_marks(text: str, whole: Iterable[Span] = ()) -> list[Span]:
    """Return where the words of a text lie.

    whole: in order, what is a word each.
    """
    words, start = [], 0
    for span in whole:
        words += [Span(*match.span()) for match in _WORD.finditer(text, start, span.start)]
        words.append(span)
        start = span.end
    return words + [Span(*match.span()) for match in _WORD.finditer(text, start)]


def has_letters_or_digits(word: str) -> bool:
    """Return whether it is more than punctuation."""
    return any(character.isalnum() for character in word)

"""Finds the words of a segment and of its translation, finer than spaces part them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.text.alignment import Span
from serving.text.markup.tokens import Role, Token, placed

# Marks on letters are no letters to `re`; of these scripts all characters are taken for some.
_LETTER = (
    r"[\w\u0300-\u036F\u0483-\u0489\u0591-\u05C7\u0610-\u065F\u06D6-\u06ED\u0900-\u0DFF\u0E00-\u0EFF"
    r"\u0F00-\u109F\u1780-\u17FF\u200C\u200D]"
)
_ALONE = r"[\u3040-\u30FF\u3400-\u4DBF\u4E00-\u9FFF]"  # scripts without spaces between words
# What is elided before a word (l', qu'), a character that is a word, a word, punctuation.
_WORD = re.compile(
    rf"(?:[cdjlmnst]|\w*qu)['’](?=\w)|{_ALONE}|(?:(?!{_ALONE}){_LETTER})+"
    rf"(?:[-.'’,](?=\w)(?:(?!{_ALONE}){_LETTER})+)*|[^\w\s]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SourceWords:
    """Holds the words that a segment's marks part.

    before: of each token of the segment, how many words end before it begins; and of all.
    translated: the text between what is kept, which a model translates.
    kept: the words that stand for what is kept, with their tokens.
    numbers: those that are numbers, likewise.
    """

    spans: tuple[Span, ...]
    is_word: tuple[bool, ...]
    before: tuple[int, ...]
    translated: str
    kept: dict[int, Token]
    numbers: dict[int, Token]


def source_words(tokens: Sequence[Token]) -> SourceWords:
    spans: list[Span] = []
    is_word: list[bool] = []
    before: list[int] = []
    kept: dict[int, Token] = {}
    numbers: dict[int, Token] = {}
    text, start = "", 0

    def end_text() -> None:
        for span in words_in(text):
            spans.append(Span(start + span.start, start + span.end))
            is_word.append(is_wordy(text[span.start : span.end]))

    for token, place in placed(tokens):
        if token.role is Role.TEXT:
            before.append(len(spans))  # not used of text
            text += token.text
            continue
        end_text()
        before.append(len(spans))
        if token.role in (Role.KEPT, Role.NUMBER):
            (kept if token.role is Role.KEPT else numbers)[len(spans)] = token
            spans.append(place)
            is_word.append(True)
        text, start = "", place.end
    end_text()
    translated = "".join(token.text for token in tokens if token.role is Role.TEXT)
    return SourceWords(
        tuple(spans), tuple(is_word), (*before, len(spans)), translated, kept, numbers
    )


def words_in(text: str, whole: Iterable[Span] = ()) -> list[Span]:
    """Return where the words of a text lie.

    whole: in order, what is a word each.
    """
    words, start = [], 0
    for span in whole:
        words += [Span(*match.span()) for match in _WORD.finditer(text, start, span.start)]
        words.append(span)
        start = span.end
    return words + [Span(*match.span()) for match in _WORD.finditer(text, start)]


def is_wordy(word: str) -> bool:
    """Say if it is more than punctuation."""
    return any(character.isalnum() for character in word)

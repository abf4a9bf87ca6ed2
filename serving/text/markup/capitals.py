"""Writes segments that are all in capitals in small letters, for a model to read."""

import re
from collections.abc import Iterable, Iterator

from serving.text.markup.known_words import KnownWords
from serving.text.markup.tokens import Role, Token
from serving.text.markup.typography import is_run

_CAPITAL_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_FEWEST_WORDS, _FEWEST_LETTERS = 2, 8  # with fewer it may be an abbreviation
_ENGLISH_I = re.compile(r"\bi\b")


def is_in_capitals(tokens: Iterable[Token]) -> bool:
    """Return whether a segment has no small letter, and is no abbreviation."""
    text = " ".join(token.text for token in tokens if token.role is Role.TEXT)
    words = _CAPITAL_WORD.findall(text)
    num_letters = sum(map(len, words))
    return text.isupper() and len(words) >= _FEWEST_WORDS and num_letters >= _FEWEST_LETTERS


def lowercase_tokens(
    tokens: Iterable[Token], language: str, known_words: KnownWords | None
) -> Iterator[Token]:
    """Yield the tokens of a segment in small letters, with a capital where a sentence has one:
    at its beginning, in English for I, and for names among the known words.
    """
    is_first = True
    for token in tokens:
        if token.role is not Role.TEXT or not token.text or is_run(token):
            yield token
            continue
        text = known_words.in_usual_letters(token.text) if known_words else token.text.lower()
        if language == "en":
            text = _ENGLISH_I.sub("I", text)
        if is_first:
            text = text[:1].upper() + text[1:]
        is_first = False
        yield Token(Role.TEXT, token.raw, text)

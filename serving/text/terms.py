"""Finds terms in texts: as whole words, in capitals or not.

In scripts that put no space between words, and in Korean, whose words take endings, every character
may begin or end a term.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

# Thai and Lao, Burmese, Hangul, Khmer, kana, Han
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_LETTER = rf"[^\W{_WITHOUT_SPACES}]"
_WORD = re.compile(rf"[{_WITHOUT_SPACES}]|{_LETTER}+")
# Letters, with hyphens among them; what is elided, as in "l'eau", is a word of its own.
HYPHENATED_WORD = re.compile(rf"[{_WITHOUT_SPACES}]|{_LETTER}+(?:-{_LETTER}+)*")
_LONGEST_RUN = 8  # words of a term that are compared


class TextWords:
    """The words of a text, an index of the terms that may occur in it: the time that a search takes
    does not depend on the number of terms.
    """

    def __init__(self, text: str) -> None:
        self._words = _casefolded_words(text)
        self._runs: dict[int, set[tuple[str, ...]]] = {}

    def first_words(self) -> set[str]:
        """Return the `first_word` of all terms that may occur."""
        return {"", *self._words}

    def may_have(self, term: str) -> bool:
        """Return whether the words of a term stand side by side, whatever is between them."""
        words = tuple(_casefolded_words(term)[:_LONGEST_RUN])
        return not words or words in self._word_runs(len(words))

    def _word_runs(self, length: int) -> set[tuple[str, ...]]:
        if length not in self._runs:
            shifted = (self._words[start:] for start in range(length))
            self._runs[length] = set(zip(*shifted, strict=False))
        return self._runs[length]


def first_word(term: str) -> str:
    """Return the word by which a term is looked up; empty for one without words."""
    return next(iter(_casefolded_words(term)), "")


def _casefolded_words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


@lru_cache(maxsize=4096)
def term_pattern(term: str) -> re.Pattern[str]:
    """Match a term as whole words, in capitals or not."""
    return re.compile(rf"(?<!{_LETTER}){re.escape(term)}(?!{_LETTER})", re.IGNORECASE)


def any_term_pattern(terms: Iterable[str]) -> re.Pattern[str]:
    """Match any of several terms, written exactly so; the longest of those that begin together."""
    longest_first = sorted(terms, key=len, reverse=True)
    return re.compile(rf"(?<!{_LETTER})(?:{'|'.join(map(re.escape, longest_first))})(?!{_LETTER})")

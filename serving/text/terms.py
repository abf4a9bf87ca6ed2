"""Finds terms in texts: as whole words, in capitals or not.

In scripts that put no space between words, and in Korean, whose words take endings, every character
may begin or end a term.
"""

import re
from functools import lru_cache

# Thai and Lao, Burmese, Hangul, Khmer, kana, Han
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_LETTER = rf"[^\W{_WITHOUT_SPACES}]"
_WORD = re.compile(rf"[{_WITHOUT_SPACES}]|{_LETTER}+")


def words_of(text: str) -> set[str]:
    """Return the words by which terms that may occur in a text can be looked up."""
    return {word.casefold() for word in _WORD.findall(text)}


def first_word(term: str) -> str:
    """Return the word of a term that is in `words_of` every text in which it occurs; empty for a
    term without words, which may occur in any.
    """
    found = _WORD.search(term)
    return found.group().casefold() if found else ""


@lru_cache(maxsize=4096)
def term_pattern(term: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!{_LETTER}){re.escape(term)}(?!{_LETTER})", re.IGNORECASE)

"""Find translations in which the words of a short source became nothing.

Of a translation without any words that is certain. One that is copied words alone, as "Street 12"
of "Green Street 12", leaves the others out.
"""

from serving.text.function_words import FUNCTION_WORDS
from serving.text.terms import HYPHENATED_WORD

MAX_CHECKED_WORDS = 8  # of a source; of a longer one a model mostly leaves out what says little
_MIN_LETTERS = 2  # of a word that must not be left out: not the s of "Perl's"
_MIN_LETTERS_OF_UNLISTED = 4  # in languages whose function words are not listed


class OmissionCheck:
    """Compares the words of a segment that are translated with those of its translation."""

    def __init__(self, text: str, language: str) -> None:
        words = _words(text)
        self._words, self._num_words = frozenset(words), len(words)
        self._language = language

    @property
    def is_needed(self) -> bool:
        """Return whether there are words, and few."""
        return 0 < self._num_words <= MAX_CHECKED_WORDS

    def lacks_words(self, translation: str) -> bool:
        """Return whether a translation lacks words: it has no word at all, or only copied ones and
        not all that carry meaning.

        translation: without what is kept.
        """
        words = {*_words(translation)}
        return words <= self._words and (
            not words or any(_has_meaning(word, self._language) for word in self._words - words)
        )

    def has_all_words(self, translation: str, language: str) -> bool:
        """Return whether a translation into a language has so many words that none needs to be
        missing.
        """
        num_needed = sum(_has_meaning(word, self._language) for word in self._words)
        num_written = sum(_has_meaning(word, language) for word in _words(translation))
        return num_written >= num_needed and not self.lacks_words(translation)

    def may_lack_words(self, beginning: str) -> bool:
        """Return whether a translation that begins so may lack words."""
        words = _words(beginning)
        *whole, last = words or [""]
        return self._words.issuperset(whole) and any(word.startswith(last) for word in self._words)


def _has_meaning(word: str, language: str) -> bool:
    """Return whether a word is more than an article, a preposition and the like."""
    function_words = FUNCTION_WORDS.get(language)
    if function_words is None:
        return len(word) >= _MIN_LETTERS_OF_UNLISTED
    return len(word) >= _MIN_LETTERS and word.lower() not in function_words


def _words(text: str) -> list[str]:
    return [word for word in HYPHENATED_WORD.findall(text) if any(map(str.isalpha, word))]

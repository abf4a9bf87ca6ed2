"""How alike two segments are: an edit distance of their words, as translators' tools count it.

A number counts as equal to any other number, because a number that differs can be put into the
translation of the stored segment. Where it cannot, it counts as a word that differs.
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from rapidfuzz.distance import Levenshtein

EXACT = 100
_ALMOST = 99  # the most that segments score that are not equal to the character
# Scripts without spaces between words, whose characters count one by one: Thai to Khmer, Kana,
# Han and Hangul's letters.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"\d+|[{_UNSPACED}]|[^\W\d{_UNSPACED}]+|[^\w\s]|_")
_NUMBER = re.compile(r"\d+")


def word_ids(text: str) -> "array[int]":
    """Return an id for each word and each punctuation mark of a text, in order; capitals do not
    count. All numbers have the same id.
    """
    return array("I", map(_id, _WORD.findall(text)))


@lru_cache(maxsize=2**16)
def _id(word: str) -> int:
    key = "0" if word.isdecimal() else word.casefold()
    return int.from_bytes(
        blake2b(key.encode(errors="surrogatepass"), digest_size=4).digest(), "little"
    )


def percent(one: Sequence[int], other: Sequence[int], least: int) -> int:
    """Return how alike two segments are by their words, from 0 to 99; 0 below `least`."""
    longer = max(len(one), len(other))
    most_edits = longer - -(-least * longer // 100)
    edits = Levenshtein.distance(one, other, score_cutoff=max(most_edits, 0))
    if edits > most_edits:
        return 0
    return min(100 * (longer - edits) // longer if longer else 0, _ALMOST)


def most_unmatched(num_words: int, least: int) -> int:
    """Return how many of a segment's words may lack in another one that is as alike as `least`."""
    return num_words - -(-least * num_words // 100)


def replace_numbers(text: str, source: str, translation: str) -> str | None:
    """Return a translation of a stored source with the numbers of a text in their place.

    None where that cannot be done: the text has more or fewer numbers, or one of them does not
    occur in the translation as often as in the source.
    """
    new_numbers, old_numbers = _NUMBER.findall(text), _NUMBER.findall(source)
    if len(new_numbers) != len(old_numbers):
        return None
    pairs = {*zip(old_numbers, new_numbers, strict=True)}
    counts, translated = Counter(old_numbers), Counter(_NUMBER.findall(translation))
    if len(pairs) != len(counts):
        return None  # one number became two
    changes = {old: new for old, new in pairs if old != new}
    if any(translated[old] != counts[old] for old in changes):
        return None
    return _NUMBER.sub(lambda match: changes.get(match[0], match[0]), translation)


def num_different_numbers(one: str, other: str) -> int:
    """Return how many numbers of two texts differ, one by one."""
    numbers = Counter(_NUMBER.findall(one)), Counter(_NUMBER.findall(other))
    return max((numbers[0] - numbers[1]).total(), (numbers[1] - numbers[0]).total())

"""Deals texts out so that none comes twice: a server's caches would answer what they know already.

Texts come in rounds, in another order each. From the second round on every sentence of a text
begins with the number of the round: no cache has seen "In 1002, ...", and it is hardly longer.
"""

import random
import re
from collections.abc import Sequence
from functools import lru_cache

_SENTENCE = re.compile(r"^|(?<=[a-z]{3}[.!?] )(?=[A-Z])")  # not after "Mr."
_FIRST_YEAR = 1000


class Texts:
    """Gives the text at any place of an endless sequence, which depends on the seed alone."""

    def __init__(self, texts: Sequence[str], seed: int, repeats: bool = False) -> None:
        self._texts = texts
        self._seed = seed
        self._repeats = repeats
        self._order = lru_cache(maxsize=4)(self._shuffled)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> str:
        round_, place = divmod(index, len(self._texts))
        text = self._texts[self._order(round_)[place]]
        return text if self._repeats else varied(text, round_)

    def _shuffled(self, round_: int) -> list[int]:
        order = list(range(len(self._texts)))
        random.Random(f"{self._seed}/{round_}").shuffle(order)
        return order


class Prompts:
    """Makes prompts of given lengths by joining paragraphs and cutting them after a word."""

    def __init__(self, texts: Texts, words: tuple[int, int], seed: int) -> None:
        self._texts = texts
        self._words = words
        self._seed = seed

    def __getitem__(self, index: int) -> str:
        length = random.Random(f"{self._seed}/words/{index}").randint(*self._words)
        words: list[str] = []
        place = index
        while len(words) < length:
            words += self._texts[place].split()
            place += 1
        return " ".join(words[:length])


def varied(text: str, round_: int) -> str:
    """Return the text as it stands in a round."""
    if round_ == 0:
        return text
    return _SENTENCE.sub(f"In {_FIRST_YEAR + round_}, ", text)


def num_sentences(text: str) -> int:
    return len(_SENTENCE.findall(text))


def beginnings(texts: Texts, words: int, count: int) -> list[str]:
    """Return the beginnings that groups of prompts share, so many words each."""
    found, place = [], 0
    for _ in range(count if words else 0):
        start: list[str] = []
        while len(start) < words:
            start += texts[place].split()
            place += 1
        found.append(" ".join(start[:words]))
    return found

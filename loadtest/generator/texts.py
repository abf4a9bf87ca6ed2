"""The texts that requests carry: the built-in corpus, files, prompts."""

import gzip
import random
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from loadtest.errors import PlanError

_FOLDER = Path(__file__).with_name("corpus")
_SHORT, _LONG = 8, 15  # words


def _sentences() -> list[str]:
    return read_lines(_FOLDER / "sentences.txt.gz")


def _paragraphs() -> list[str]:
    return read_lines(_FOLDER / "paragraphs.txt.gz")


def _mixed() -> list[str]:
    """Return nine sentences for every paragraph."""
    sentences = _sentences()
    return sentences + _paragraphs()[: len(sentences) // 9]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file, compressed by gzip or not, that hold something, each once."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} cannot be read as text: {error}") from error
    return list(dict.fromkeys(stripped for line in lines if (stripped := line.strip())))


CORPORA: dict[str, Callable[[], list[str]]] = {
    "sentences": _sentences,
    "short": lambda: [text for text in _sentences() if num_words(text) <= _SHORT],
    "long": lambda: [text for text in _sentences() if num_words(text) >= _LONG],
    "mixed": _mixed,
    "paragraphs": _paragraphs,
}


def read_texts(path: Path | None, lengths: str, words: tuple[int, int] | None) -> list[str]:
    """Return the texts of a file, or of a shipped corpus, that have so many words.

    Raises PlanError where there are none.
    """
    texts = CORPORA[lengths]() if path is None else read_lines(path)
    if words is not None:
        texts = [text for text in texts if words[0] <= num_words(text) <= words[1]]
    if not texts:
        name = f"{path}" if path else f"the shipped corpus {lengths!r}"
        limits = f" of {words[0]} to {words[1]} words" if words else ""
        raise PlanError(f"{name} holds no text{limits}")
    return texts


def num_words(text: str) -> int:
    return len(text.split())


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

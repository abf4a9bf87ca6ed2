"""The texts that requests carry: the built-in corpus or a file, varied when they come again."""

import gzip
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from loadtest.errors import PlanError
from loadtest.plan import WorkPlan

_FOLDER = Path(__file__).parent
_SHORT, _LONG = 8, 15  # words


def _sentences() -> list[str]:
    return read_lines(_FOLDER / "sentences.txt.gz")


def _paragraphs() -> list[str]:
    return read_lines(_FOLDER / "paragraphs.txt.gz")


def _mixed() -> list[str]:
    """Return nine sentences for every paragraph."""
    sentences = _sentences()
    return sentences + _paragraphs()[: len(sentences) // 9]


CORPORA: dict[str, Callable[[], list[str]]] = {
    "sentences": _sentences,
    "short": lambda: [text for text in _sentences() if num_words(text) <= _SHORT],
    "long": lambda: [text for text in _sentences() if num_words(text) >= _LONG],
    "mixed": _mixed,
    "paragraphs": _paragraphs,
}


def read_lines(path: Path) -> list[str]:
    """Return the different non-empty lines of a file, which may be compressed by gzip."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} cannot be read as text: {error}") from error
    return list(dict.fromkeys(stripped for line in lines if (stripped := line.strip())))


def read_texts(path: Path | None, lengths: str, words: tuple[int, int] | None) -> list[str]:
    """Return the texts of a file, or of a built-in corpus, that have so many words.

    Raise PlanError if there are none.
    """
    texts = CORPORA[lengths]() if path is None else read_lines(path)
    if words is not None:
        texts = [text for text in texts if words[0] <= num_words(text) <= words[1]]
    if not texts:
        name = f"{path}" if path else f"the built-in corpus {lengths!r}"
        limits = f" of {words[0]} to {words[1]} words" if words else ""
        raise PlanError(f"{name} holds no text{limits}")
    return texts


def num_words(text: str) -> int:
    return len(text.split())


_SENTENCE = re.compile(r"^|(?<=[a-z]{3}[.!?] )(?=[A-Z])")  # not after "Mr."
_FIRST_YEAR = 1000


def num_sentences(text: str) -> int:
    return len(_SENTENCE.findall(text))


class Texts:
    """An endless sequence of texts in an order that depends on the seed alone.

    From the second round on, each sentence begins with another year, so that a server's caches know
    none of them, unless `repeats`.
    """

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


def varied(text: str, round_: int) -> str:
    """Return the text of a round, from 0."""
    if round_ == 0:
        return text
    return _SENTENCE.sub(f"In {_FIRST_YEAR + round_}, ", text)


@dataclass(frozen=True, slots=True)
class Item:
    """What one request asks.

    hang_up: the part of an answer's usual time after which to close the connection; None waits.
    """

    id: int
    text: str
    hang_up: float | None = None


class Work:
    """The items of a run. Raise PlanError if there are no texts for it."""

    def __init__(self, plan: WorkPlan) -> None:
        self._plan = plan
        self._texts = Texts(
            read_texts(plan.input, plan.lengths, plan.words), plan.seed, plan.repeats
        )

    @property
    def num_texts(self) -> int:
        """Return how many texts there are before they come again, varied."""
        return len(self._texts)

    def item(self, number: int) -> Item:
        place = self._plan.skipped_texts + number
        return Item(number, self._texts[place], self._hang_up(place))

    def _hang_up(self, place: int) -> float | None:
        if not self._plan.disconnect:
            return None
        draws = random.Random(f"{self._plan.seed}/disconnect/{place}")
        return draws.random() if draws.random() < self._plan.disconnect else None

"""The texts that requests carry: the built-in corpus or a file, varied when they come again."""

import gzip
import lzma
import random
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

from loadtest.plan import WorkPlan
from loadtest.records import LoadTestError

_FOLDER = Path(__file__).parent
_SHORT, _LONG = 8, 15  # words
OPENED: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}


def _sentences() -> list[str]:
    return read_lines(_FOLDER / "sentences.txt.xz")


def _paragraphs() -> list[str]:
    return read_lines(_FOLDER / "paragraphs.txt.xz")


def _mix_sentences() -> list[str]:
    """Return nine sentences for every paragraph."""
    sentences = _sentences()
    return sentences + _paragraphs()[: len(sentences) // 9]


CORPORA: dict[str, Callable[[], list[str]]] = {
    "sentences": _sentences,
    "short": lambda: [text for text in _sentences() if num_words(text) <= _SHORT],
    "long": lambda: [text for text in _sentences() if num_words(text) >= _LONG],
    "mixed": _mix_sentences,
    "paragraphs": _paragraphs,
}


def read_lines(path: Path) -> list[str]:
    """Return the different non-empty lines of a file, which may be compressed by gzip or xz."""
    try:
        with OPENED.get(path.suffix, open)(path, "rt", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise LoadTestError(f"{path} cannot be read as text: {error}") from error
    return list(dict.fromkeys(stripped for line in lines if (stripped := line.strip())))


def read_texts(path: Path | None, lengths: str) -> list[str]:
    """Return the texts of a file or of a built-in corpus. Raise LoadTestError if there are none."""
    texts = CORPORA[lengths]() if path is None else read_lines(path)
    if not texts:
        raise LoadTestError(f"{path} holds no text")
    return texts


def num_words(text: str) -> int:
    return len(text.split())


_SENTENCE = re.compile(r"^|(?<=[a-z]{3}[.!?] )(?=[A-Z])")  # not after "Mr."
_FIRST_YEAR = 1000


def num_sentences(text: str) -> int:
    return len(_SENTENCE.findall(text))


class RequestTexts:
    """An endless sequence of texts in an order that depends on the seed alone.

    From the second round on, each sentence begins with another year, so that a server's caches know
    none of them, unless `repeats`.
    """

    def __init__(self, texts: Sequence[str], seed: int, repeats: bool = False) -> None:
        self._texts = texts
        self._seed = seed
        self._repeats = repeats
        self._order = lru_cache(maxsize=4)(self._shuffle)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> str:
        round_, place = divmod(index, len(self._texts))
        text = self._texts[self._order(round_)[place]]
        return text if self._repeats else vary(text, round_)

    def _shuffle(self, round_: int) -> list[int]:
        order = list(range(len(self._texts)))
        random.Random(f"{self._seed}/{round_}").shuffle(order)
        return order


def vary(text: str, round_: int) -> str:
    """Return the text of a round, from 0."""
    if round_ == 0:
        return text
    return _SENTENCE.sub(f"In {_FIRST_YEAR + round_}, ", text)


class Work:
    """The texts of a run. Raise LoadTestError if there are no texts for it."""

    def __init__(self, plan: WorkPlan) -> None:
        self._num_skipped = plan.skipped_texts
        self._texts = RequestTexts(read_texts(plan.input, plan.lengths), plan.seed, plan.repeats)

    @property
    def num_texts(self) -> int:
        """Return how many texts there are before they come again, varied."""
        return len(self._texts)

    def text(self, number: int) -> str:
        return self._texts[self._num_skipped + number]

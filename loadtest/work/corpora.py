"""Finds the texts of a run: the corpus shipped beside this file, or the lines of the user's own.

Where the shipped texts are from stands in corpus/ORIGIN.md.
"""

import gzip
from collections.abc import Callable
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


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file, compressed by gzip or not, that hold something, each once."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} cannot be read as text: {error}") from error
    return list(dict.fromkeys(stripped for line in lines if (stripped := line.strip())))


def num_words(text: str) -> int:
    return len(text.split())

"""Reads lines with numbers, addresses, signs and the like."""

import gzip
import re
from pathlib import Path

TESTS = Path(__file__).parents[3]
MADE = TESTS / "data/made"
CORPUS = "shared/data/en-fr"  # beside the checkout, or above it
_HAS_UNITS = re.compile(r"[\d@#%&<>=+*/\\|~^_{}\[\]()€$£¥§©®™°•`]")


def units() -> list[str]:
    """Return 300 sentences with numbers, written in all ways."""
    return lines_of(MADE / "units.txt")


def signs() -> list[str]:
    """Return sentences with signs, entities, code, keys, emoji and marks of lists."""
    return lines_of(MADE / "signs.txt")


def placeholder_lines() -> dict[str, list[str]]:
    """Return 300 lines of programs, each with its placeholders, which the file has in ‹ and ›."""
    lines = lines_of(MADE / "placeholders.txt")
    return {re.sub("[‹›]", "", line): re.findall("‹(.*?)›", line) for line in lines}


def marks() -> list[str]:
    """Return sentences with quotation marks, brackets, runs of marks, faces and order numbers."""
    return lines_of(MADE / "marks.txt")


def thousand_lines() -> list[str]:
    """Return both sets and lines of the corpus, 1,000 in all; fewer if the corpus is missing."""
    own_lines = list(dict.fromkeys([*units(), *signs()]))
    real = _corpus_lines()
    holding = [line for line in real if _HAS_UNITS.search(line)]
    others = [line for line in real if not _HAS_UNITS.search(line)]
    num_holding = (1000 - len(own_lines)) * 3 // 4
    chosen = _spread(holding, num_holding)
    return [*own_lines, *chosen, *_spread(others, 1000 - len(own_lines) - len(chosen))]


def _corpus_lines() -> list[str]:
    """Return the English of the held-out pairs; nothing if they are missing."""
    lines: dict[str, None] = {}
    folders = (folder / CORPUS for folder in TESTS.parents)
    corpus = next((folder for folder in folders if folder.exists()), TESTS)
    for name in ("test.tsv.gz", "dev.tsv.gz"):
        if (path := corpus / name).exists():
            with gzip.open(path, "rt", encoding="utf-8") as file:
                lines |= {line.split("\t")[1]: None for line in file}
    return [line for line in lines if 10 <= len(line) <= 300]


def lines_of(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]


def _spread(lines: list[str], count: int) -> list[str]:
    """Return so many lines, evenly spaced."""
    step = max(1, len(lines) / count) if count else 1
    return [lines[int(number * step)] for number in range(min(count, len(lines)))]

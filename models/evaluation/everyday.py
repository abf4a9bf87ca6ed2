"""Judges everyday sentences by the facts that a translation of each must say.

Beside a file of pairs, `everyday.tsv`, lies `everyday-facts.txt`, line by line: facts are separated
by semicolons, other words for one of them by commas. Words alone judge no translation: whoever
reads the table does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.data.corpus import Pair, read_pairs


@dataclass(frozen=True)
class Everyday:
    """Is a sentence; each of its facts is a tuple of words, one of which says it."""

    pair: Pair
    facts: tuple[tuple[str, ...], ...]

    def is_said_by(self, translation: str) -> bool:
        """Tell whether a translation says every fact, in any case."""
        said = translation.lower()
        return all(any(word in said for word in words) for words in self.facts)


def read_everyday(path: Path) -> list[Everyday]:
    """Read pairs and facts. Raises OSError, and ValueError where lines do not belong together."""
    pairs = read_pairs(path)
    lines = path.with_name(f"{path.stem}-facts.txt").read_text(encoding="utf-8").splitlines()
    if len(pairs) != len(lines):
        raise ValueError(f"{path} has {len(pairs)} sentences, and facts of {len(lines)}")
    facts = [tuple(tuple(fact.split(",")) for fact in line.split(";")) for line in lines]
    return [Everyday(pair, each) for pair, each in zip(pairs, facts, strict=True)]


def table(sentences: Sequence[Everyday], translations: Sequence[str]) -> str:
    """Write a Markdown table of all translations."""
    rows = ["| | sentence | translation | every fact |", "|---|---|---|---|"]
    for each, translation in zip(sentences, translations, strict=True):
        shown = translation.replace("|", "\\|")
        is_said = "yes" if each.is_said_by(translation) else "no"
        rows.append(f"| {each.pair.origin} | {each.pair.source} | {shown} | {is_said} |")
    return "\n".join(rows)

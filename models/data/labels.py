"""Lays out texts that are labelled with their origins, and counts which are given their label."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from models.conventions import AddedTokens
from models.data.corpus import Pair


def framed(
    rows: Sequence[Sequence[int]], added: AddedTokens, max_source_tokens: int
) -> list[list[int]]:
    """Return texts with their special tokens, cut where they are too long."""
    prefix, suffix = added.source_prefix, added.source_suffix
    room = max_source_tokens - len(prefix) - len(suffix)
    return [[*prefix, *ids[:room], *suffix] for ids in rows]


def numbers_of(pairs: Sequence[Pair], labels: Sequence[str]) -> list[int]:
    """Number each text's label. Raises ValueError where an origin is none of the labels."""
    numbers = {label: number for number, label in enumerate(labels)}
    if unknown := sorted({pair.origin for pair in pairs} - numbers.keys()):
        raise ValueError(f"texts are from {', '.join(unknown)}, of which the model has no label")
    return [numbers[pair.origin] for pair in pairs]


@dataclass(frozen=True)
class LabelScore:
    """How many texts have a label, how many are given it, and how many rightly."""

    label: str
    texts: int
    given: int
    right: int

    @property
    def recall(self) -> float:
        return self.right / max(self.texts, 1)

    @property
    def precision(self) -> float:
        return self.right / max(self.given, 1)


@dataclass(frozen=True)
class LabelResult:
    """Has a score for each label."""

    scores: tuple[LabelScore, ...]

    @property
    def accuracy(self) -> float:
        """Return the share of all texts that are given their label."""
        total = sum(score.texts for score in self.scores)
        return sum(score.right for score in self.scores) / max(total, 1)

    def as_json(self) -> dict[str, Any]:
        return {"accuracy": self.accuracy, "labels": [asdict(score) for score in self.scores]}

    def as_markdown(self) -> str:
        lines = ["| label | texts | recall | precision |", "| --- | ---: | ---: | ---: |"]
        lines += [
            f"| {s.label} | {s.texts} | {s.recall:.1%} | {s.precision:.1%} |" for s in self.scores
        ]
        return f"{self.accuracy:.1%} of the texts get their label.\n\n" + "\n".join(lines)


def tally(labels: Sequence[str], wanted: Sequence[int], given: Sequence[int]) -> LabelResult:
    """Count by label. wanted, given: the number of each text's label."""
    pairs = [*zip(wanted, given, strict=True)]
    return LabelResult(
        tuple(
            LabelScore(label, [*wanted].count(i), [*given].count(i), pairs.count((i, i)))
            for i, label in enumerate(labels)
        )
    )

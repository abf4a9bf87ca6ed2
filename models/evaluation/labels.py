"""Scores an encoder that labels texts: how many of each label it finds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from models.contract.models import Encoder
from models.evaluation.vectors import vectors_of


@dataclass(frozen=True)
class LabelScore:
    """Holds how many texts have a label, how many are given it, and how many rightly."""

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
        """Tell the share of all texts that are given their label."""
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


def score_labels(
    module: Encoder, rows: Sequence[Sequence[int]], wanted: Sequence[int]
) -> LabelResult:
    """Label texts, complete with their special tokens. wanted: the number of each one's label."""
    logits = vectors_of(module, rows, [[0] * len(row) for row in rows])
    given = [int(each.argmax()) for each in logits]
    pairs = [*zip(wanted, given, strict=True)]
    return LabelResult(
        tuple(
            LabelScore(label, [*wanted].count(i), given.count(i), pairs.count((i, i)))
            for i, label in enumerate(module.config.labels)
        )
    )

"""Compares what engines said: the same tokens, or, against references, BLEU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.bench.race.players import Turn
from loadtest.bench.race.results import Agreement


@dataclass(frozen=True)
class Checker:
    """Knows how outputs become text, and what they should have been.

    references: of the inputs of the workload, in their order; None where there are none.
    """

    read: Callable[[list[int]], str]
    references: Sequence[str] | None = None

    def check(self, ours: Turn, theirs: Turn) -> Agreement:
        pairs = list(zip(ours.outputs, theirs.outputs, strict=True))
        difference = None
        if self.references is not None:
            difference = self._bleu(ours.outputs) - self._bleu(theirs.outputs)
        return Agreement(sum(a == b for a, b in pairs), len(pairs), difference)

    def _bleu(self, outputs: Sequence[Any]) -> float:
        from sacrebleu import corpus_bleu

        assert self.references is not None
        texts = [each if isinstance(each, str) else self.read(each) for each in outputs]
        score: float = corpus_bleu(texts, [list(self.references)]).score
        return score

"""Scores translations per origin of the test sentences."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF

from models.data.corpus import Pair
from models.evaluation.keeping import share_kept

Translate = Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class Score:
    """Holds sacreBLEU and chrF of one part of a test set.

    kept: percent of the sentences with numbers, names, addresses or capitals that carry them over.
    """

    origin: str
    sentences: int
    bleu: float
    chrf: float
    kept: float | None = None


@dataclass(frozen=True)
class TestResult:
    """Holds scores per origin, largest first, and the metrics' signatures."""

    scores: list[Score]
    bleu_signature: str
    chrf_signature: str

    def as_json(self) -> dict:
        return {
            "scores": [vars(score) for score in self.scores],
            "bleu_signature": self.bleu_signature,
            "chrf_signature": self.chrf_signature,
        }

    def as_table(self, others: "Mapping[str, TestResult] | None" = None) -> str:
        """Write a Markdown table; `others` are scores on the same test set, by names for columns,
        which tell BLEU and how much more this is.
        """
        others = others or {}
        heads = ["source", "sentences", "BLEU", "chrF", "kept"]
        heads += [head for name in others for head in (f"BLEU {name}", "difference")]
        rows = [heads, ["---", *["---:"] * (len(heads) - 1)]]
        for number, s in enumerate(self.scores):
            kept = "" if s.kept is None else f"{s.kept:.1f} %"
            cells = [s.origin, str(s.sentences), f"{s.bleu:.1f}", f"{s.chrf:.1f}", kept]
            for other in (each.scores[number].bleu for each in others.values()):
                cells += [f"{other:.2f}", f"{s.bleu - other:+.2f}"]
            rows.append(cells)
        return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)

    @property
    def signatures(self) -> str:
        """Write a Markdown sentence."""
        return f"BLEU `{self.bleu_signature}`, chrF `{self.chrf_signature}`."


def score(pairs: list[Pair], hypotheses: list[str]) -> TestResult:
    """Compare hypotheses with the targets of `pairs`, origin by origin."""
    bleu, chrf = BLEU(), CHRF()
    scores = []
    for origin in sorted({p.origin for p in pairs}):
        mine = [p for p in pairs if p.origin == origin]
        ours = [h for p, h in zip(pairs, hypotheses, strict=True) if p.origin == origin]
        references, kept = [[p.target for p in mine]], share_kept(mine, ours)
        scores.append(
            Score(
                origin,
                len(mine),
                round(bleu.corpus_score(ours, references).score, 2),
                round(chrf.corpus_score(ours, references).score, 2),
                None if kept is None else round(kept, 1),
            )
        )
    scores.sort(key=lambda s: -s.sentences)
    return TestResult(scores, str(bleu.get_signature()), str(chrf.get_signature()))


def evaluate(pairs: list[Pair], translate: Translate) -> TestResult:
    """Translate the sources of `pairs` and score the result."""
    return score(pairs, translate([p.source for p in pairs]))

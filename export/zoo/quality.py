"""The quality of translations on a whole test set and by source length, and differences between
language models.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from export.zoo.results import Document, LengthBin, Quality
from models.data.corpus import Pair

BINS = (1, 9, 11, 13, 16, 20)  # words that a bin begins with
RESAMPLES = 1000
ELISION = re.compile(r"(?<=[^\W\d_])'(?=[^\W\d_])")


class Scorer:
    """Scores one hypothesis for each pair of a test set."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._references = [pair.target for pair in pairs]
        self._lengths = np.array([len(pair.source.split()) for pair in pairs])
        self._bleu, self._lowercased, self._chrf = BLEU(), BLEU(lowercase=True), CHRF()

    def quality(self, hypotheses: Sequence[str]) -> Quality:
        ours, references = list(hypotheses), self._references
        split, split_references = _split_elisions(ours), _split_elisions(references)
        lowercased = self._lowercased.corpus_score(split, [split_references])
        return Quality(
            bleu=round(self._bleu.corpus_score(ours, [references]).score, 2),
            bleu_interval=round(_interval(self._statistics(ours), _bleu), 2),
            chrf=round(self._chrf.corpus_score(ours, [references]).score, 2),
            lowercased_bleu=round(lowercased.score, 2),
        )

    def signatures(self) -> dict[str, str]:
        """Return the signatures of the metrics that `quality` computes."""
        return {
            "bleu_signature": str(self._bleu.get_signature()),
            "lowercased_bleu_signature": str(self._lowercased.get_signature()),
            "chrf_signature": str(self._chrf.get_signature()),
        }

    def by_length(self, hypotheses: Sequence[str]) -> tuple[LengthBin, ...]:
        """BLEU of the sentences of each bin that has any."""
        statistics, bins = self._statistics(hypotheses), []
        for first, end in pairwise((*BINS, None)):
            chosen = (self._lengths >= first) & (self._lengths < (end or np.inf))
            if chosen.any():
                bins.append(
                    LengthBin(
                        words=f"{first}-{end - 1}" if end else f"{first}+",
                        sentences=int(chosen.sum()),
                        mean_words=round(float(self._lengths[chosen].mean()), 2),
                        bleu=round(_bleu(statistics[chosen].sum(0)), 2),
                    )
                )
        return tuple(bins)

    def _statistics(self, hypotheses: Sequence[str]) -> np.ndarray:
        """Return the counts that BLEU sums over sentences (Papineni et al. 2002, section 2): both
        lengths, matching n-grams, n-grams; i64 [sentences, 10].
        """
        metric = BLEU(effective_order=True)
        both = zip(hypotheses, self._references, strict=True)
        scores = [metric.sentence_score(ours, [reference]) for ours, reference in both]
        return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores])


def _split_elisions(texts: Sequence[str]) -> list[str]:
    """l'eau -> l' eau, as Moses tokenises French; sacreBLEU's 13a leaves it one token."""
    return [ELISION.sub("' ", text) for text in texts]


def _bleu(sums: np.ndarray) -> float:
    system, reference, *grams = sums.tolist()
    score = BLEU.compute_bleu(grams[:4], grams[4:], system, reference, smooth_method="exp")
    return float(score.score)


def fewer_bits(changed: Sequence[Document], plain: Sequence[Document]) -> tuple[float, float]:
    """Compute how many fewer bits per byte documents take, and half of its 95 % interval."""
    pairs = zip(changed, plain, strict=True)
    saved = np.array([[ours.bytes, other.bits - ours.bits] for ours, other in pairs])
    return _per_byte(saved.sum(0)), _interval(saved, _per_byte)


def _per_byte(sums: np.ndarray) -> float:
    num_bytes, bits = sums
    return float(bits / num_bytes)


def _interval(statistics: np.ndarray, figure: Callable[[np.ndarray], float]) -> float:
    """Half of the 95 % interval of a figure of sums, by resampling what is summed (Koehn 2004)."""
    draw, count = np.random.default_rng(0), len(statistics)
    samples = (statistics[draw.integers(count, size=count)].sum(0) for _ in range(RESAMPLES))
    low, high = np.quantile([figure(sums) for sums in samples], [0.025, 0.975])
    return float(high - low) / 2

"""Estimates of the quality of translations, from the probabilities of their own tokens.

`loadtest/LOG.md` has what else was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self

import numpy as np

from serving.text.alignment import Array, TokenizedText, find_words, overlap_shares


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rising line from the mean probability of a sentence's tokens to the chrF to be expected,
    both from 0 to 1. The default fits all models that were measured a little.
    """

    intercept: float = 0.04
    slope: float = 0.79

    @classmethod
    def from_quality(cls, quality: Mapping[str, Any]) -> Self:
        """Return `calibration` of a bundle's quality figures; the default if it is not valid, since
        another program may have written them.
        """
        try:
            figures = quality["calibration"]
            calibration = cls(float(figures["intercept"]), float(figures["slope"]))
        except (KeyError, TypeError, ValueError):
            return cls()
        if calibration.slope > 0 and isfinite(calibration.intercept + calibration.slope):
            return calibration
        return cls()

    def score(self, probability: float) -> float:
        return min(max(self.intercept + self.slope * probability, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class SegmentQuality:
    """The estimated quality of a segment's translation.

    score: the chrF to be expected, from 0 to 1; 0 if nothing was written.
    word_probabilities: the mean of each word's tokens; None for a word that was copied.
    """

    score: float
    num_tokens: int
    words: tuple[str, ...]
    word_probabilities: tuple[float | None, ...]


def segment_quality(
    calibration: Calibration, logprobs: Sequence[float], written: TokenizedText, shares: Array
) -> SegmentQuality:
    """Return the quality of a segment.

    logprobs: of its tokens. written: what was made of them, in any pieces.
    shares: how much of each token is in each piece, [pieces, tokens].
    """
    probabilities = np.exp(np.array(logprobs, np.float64))
    words = find_words(written.text)
    of_words = overlap_shares(words, written.spans) @ shares
    totals = of_words.sum(axis=1)
    means = (of_words @ probabilities / np.where(totals > 0, totals, 1)).tolist()
    return SegmentQuality(
        calibration.score(float(probabilities.mean())) if len(probabilities) else 0.0,
        len(probabilities),
        tuple(written.text[word.start : word.end] for word in words),
        tuple(mean if total > 0 else None for mean, total in zip(means, totals, strict=True)),
    )


def text_score(segments: Sequence[SegmentQuality]) -> float | None:
    """Return the mean score of segments, weighted by their tokens; None if there are none."""
    if not segments:
        return None
    weights = [max(segment.num_tokens, 1) for segment in segments]
    total = sum(segment.score * weight for segment, weight in zip(segments, weights, strict=True))
    return total / sum(weights)

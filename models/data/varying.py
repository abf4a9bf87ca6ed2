"""Cuts the sources of parallel data so that a model seldom reads the same tokens twice.

Targets are cut in one way only: a model that learns to write a word in several ways fills a beam
with the same text over and over.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.batch import TranslationBatch
from models.data.batching import ParallelData
from models.data.corpus import Pair
from models.data.segmenting import Segmenter


@dataclass(frozen=True)
class VaryingData(ParallelData):
    """Plans batches by the usual lengths; the sources in them are cut anew, as `segmenter` draws.

    texts: of every example. most_tokens: of a source, which no cut may reach.
    """

    texts: Sequence[Pair]
    segmenter: Segmenter
    most_tokens: int

    def batch(self, indices: np.ndarray) -> TranslationBatch:
        """Draw by which examples are together."""
        rng = np.random.default_rng(indices)
        sources = [self._cut(int(i), rng) for i in indices]
        targets = [self.targets[i] for i in indices]
        return ParallelData(sources, targets, self.repeats, self.tokens).batch(
            np.arange(len(indices))
        )

    def _cut(self, index: int, rng: np.random.Generator) -> list[int]:
        source = self.segmenter.encode(self.texts[index].source, rng)
        return source if len(source) < self.most_tokens else self.sources[index]

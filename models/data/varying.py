"""Cuts parallel data so that a model never sees the same tokens twice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.batch import TranslationBatch
from models.data.batching import ParallelData
from models.data.corpus import Pair
from models.data.segmenting import Segmenter


@dataclass(frozen=True)
class VaryingData(ParallelData):
    """Plans batches by the usual lengths; what they hold is cut anew, as `segmenter` draws.

    texts: of every example. limits: tokens of a source and of a target that no cut may reach.
    """

    texts: Sequence[Pair]
    segmenter: Segmenter
    limits: tuple[int, int]

    def batch(self, indices: np.ndarray) -> TranslationBatch:
        """Draw by which examples are together."""
        rng = np.random.default_rng(indices)
        rows = [self._cut(int(i), rng) for i in indices]
        sources, targets = ([row[side] for row in rows] for side in (0, 1))
        return ParallelData(sources, targets, self.repeats, self.tokens).batch(
            np.arange(len(indices))
        )

    def _cut(self, index: int, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        pair = self.texts[index]
        source, target = (self.segmenter.encode(x, rng) for x in (pair.source, pair.target))
        if len(source) < self.limits[0] and len(target) < self.limits[1]:
            return source, target
        return self.sources[index], self.targets[index]

"""BPE dropout (Provilkov et al. 2020): merges are left out at random, so that a model sees words in
several segmentations and copes with typos and rare names.

The dropout of the tokenizers library cannot be seeded. Here every draw follows from the seed and
the word, so that a resumed run continues with the same data.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np
from tokenizers import Tokenizer

from models.batch import TranslationBatch
from models.data.batching import ParallelData
from models.data.corpus import SentencePair

NUM_VARIANTS = 16  # of each word: enough to differ, few enough to be remembered
REMEMBERED = 2**18


class Segmenter:
    """Encodes texts, leaving out each merge with a probability of `dropout`."""

    def __init__(self, tokenizer: Tokenizer, dropout: float, seed: int) -> None:
        model = json.loads(tokenizer.to_str())["model"]
        self._split = tokenizer.pre_tokenizer.pre_tokenize_str
        self._ids: dict[str, int] = model["vocab"]
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._dropout, self._seed = dropout, seed
        self._variant = lru_cache(REMEMBERED)(self._segment)

    def encode(self, text: str, rng: np.random.Generator) -> list[int]:
        """Encode a text with merges left out at random."""
        pieces = [piece for piece, _ in self._split(text)]
        variants = rng.integers(NUM_VARIANTS, size=len(pieces)).tolist()
        cut = map(self._variant, pieces, variants)
        return [token_id for ids in cut for token_id in ids]

    def _segment(self, piece: str, variant: int) -> tuple[int, ...]:
        draw = random.Random(crc32(f"{self._seed} {variant} {piece}".encode())).random
        symbols = list(piece)
        while len(symbols) > 1:
            pairs = enumerate(pairwise(symbols))
            merges = [(self._ranks[p], i) for i, p in pairs if p in self._ranks]
            merges_left = [merge for merge in merges if draw() >= self._dropout]
            if not merges_left:
                break
            _, place = min(merges_left)
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
        return tuple(self._ids[symbol] for symbol in symbols)


@dataclass(frozen=True)
class VaryingData(ParallelData):
    """Parallel data whose sources are segmented anew in every batch; batches are planned by the
    usual lengths.

    texts: the pair of every example.
    most_tokens: a source with as many tokens keeps its usual segmentation.
    """

    texts: Sequence[SentencePair]
    segmenter: Segmenter
    most_tokens: int

    def batch(self, indices: np.ndarray) -> TranslationBatch:
        """Return the batch of these examples. The segmentation is seeded by their indices."""
        rng = np.random.default_rng(indices)
        sources = [self._cut(int(i), rng) for i in indices]
        targets = [self.targets[i] for i in indices]
        return ParallelData(sources, targets, self.repeats, self.tokens).batch(
            np.arange(len(indices))
        )

    def _cut(self, index: int, rng: np.random.Generator) -> list[int]:
        source = self.segmenter.encode(self.texts[index].source, rng)
        return source if len(source) < self.most_tokens else self.sources[index]

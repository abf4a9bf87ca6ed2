"""Makes batches of prose whose windows follow each other, for models that carry their state.

The stream is cut into as many texts as a batch has rows. A batch holds one window of each text, the
next batch the window after it: what a row's state holds is what stands before its window.
"""

from dataclasses import dataclass

import numpy as np
import torch

from models.batch import FollowingBatch
from models.configs.base import SpecialTokens


@dataclass(frozen=True)
class CarriedProse:
    """Holds a stream of token ids; `window` of each row are in a batch."""

    stream: np.ndarray
    window: int
    tokens: SpecialTokens

    def epoch(self, seed: int, epoch: int, tokens_per_batch: int) -> list[np.ndarray]:
        """List, for each batch, [rows, 2]: where a row's text begins, and where its window does;
        texts are cut at other places in every epoch.
        """
        offset = int(np.random.default_rng([seed, epoch]).integers(self.window))
        length = len(self.stream) - offset
        rows = max(1, min(tokens_per_batch, length) // self.window)
        first = offset + np.arange(rows) * (length // rows)
        starts = range(0, length // rows - self.window + 1, self.window)
        return [np.stack([first, first + start], axis=1) for start in starts]

    def batch(self, indices: np.ndarray) -> FollowingBatch:
        first, start = indices.T
        read = self.stream[start[:, None] + np.arange(-1, self.window)].astype(np.int64)
        begins = bool(first[0] == start[0])
        if begins:
            read[:, 0] = self.tokens.bos_id
        ids = torch.from_numpy(read)
        return FollowingBatch(ids[:, :-1], ids[:, 1:], begins)

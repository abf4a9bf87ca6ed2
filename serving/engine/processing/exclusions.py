"""Excludes tokens that no search may choose of itself: ids that the tokenizer has no text for.

The graph scores them as all others, and what it says of them is reported; a request gets one only
if it asks for it by its id.
"""

from collections.abc import Iterable

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import Manifest
from serving.engine.generation import Generation
from serving.engine.scores import Scores, best_of_all


class Exclusions:
    """Keeps those of one bundle; what ends its targets is never among them.

    is_excluded: bool [vocabulary]
    """

    def __init__(self, manifest: Manifest, token_ids: Iterable[int]) -> None:
        self.is_excluded = np.zeros(manifest.vocab_size, bool)
        self.is_excluded[list(token_ids)] = True
        self.is_excluded[list(manifest.tokens.stop)] = False
        self._ids = np.flatnonzero(self.is_excluded)

    @property
    def are_any(self) -> bool:
        return len(self._ids) > 0

    def apply(self, scores: Scores) -> None:
        """Take them out of what searches see."""
        if not len(self._ids):
            return
        scores.exclude(self._ids)
        is_hit = self.is_excluded[scores.top_ids].any(axis=1)
        rows = np.flatnonzero(is_hit & ~scores.is_chosen)
        if len(rows):
            _replace_window(scores, rows)

    def asked_by(self, generation: Generation) -> Array:
        """Find those that a request allows or prefers, and so may get all the same: i64."""
        processors = generation.request.processors
        named = [token_id for token_id, bias in processors.logit_bias if bias > 0]
        asked = np.unique(np.array([*named, *(processors.allowed_ids or ())], np.int64))
        found: Array = asked[self.is_excluded[asked]]
        return found


def _replace_window(scores: Scores, rows: Array) -> None:
    """Let the best of what is left take their places; the graph's memory stays as it is."""
    window = scores.top_ids.shape[1]
    top_logp, top_ids = scores.top_logp.copy(), scores.top_ids.copy()
    top_logp[rows], top_ids[rows] = best_of_all(scores.logp_of(rows)[rows], window)
    scores.top_logp, scores.top_ids = top_logp, top_ids

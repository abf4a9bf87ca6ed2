"""Find where a translation begins to repeat itself.

A model that reads more than it was trained on, or what it has never seen, may write the same words
until its limit (Holtzman et al. 2020). A translation loops if the same tokens in a row come several
times, more often than anything comes in its source.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

NGRAM_SIZE = 4
MOST_REPEATS = 3  # of the same n-gram; one more is a loop


class LoopDetector:
    """Follows the tokens of one translation.

    num_forced: the first tokens, which were given.
    loop_start: the number of tokens before the loop: of those before the run of n-grams that have
        all come before, at whose end one came too often. None as long as nothing loops.
    """

    def __init__(self, source_ids: Sequence[int], num_forced: int = 0) -> None:
        self._source_ids, self._num_forced = source_ids, num_forced
        self._ids: list[int] = []
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._run_start: int | None = None
        self.loop_start: int | None = None

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def num_certain(self) -> int:
        """Return the number of tokens that stay whatever follows."""
        starts = (self.loop_start, self._run_start, len(self._ids))
        return next(start for start in starts if start is not None)

    def push(self, token_id: int) -> None:
        self._ids.append(token_id)
        if len(self._ids) < NGRAM_SIZE or self.loop_start is not None:
            return
        ngram = tuple(self._ids[-NGRAM_SIZE:])
        self._counts[ngram] += 1
        count = self._counts[ngram]
        if count == 1 or len(self._ids) <= self._num_forced:
            self._run_start = None
            return
        if self._run_start is None:
            self._run_start = len(self._ids) - 1
        if count > MOST_REPEATS and count > self._most_repeats_of_source:
            self.loop_start = self._run_start

    @cached_property
    def _most_repeats_of_source(self) -> int:
        """Return how often the two tokens in a row come that come most: few translations of two
        tokens are longer than four.
        """
        return max(Counter(pairwise(self._source_ids)).values(), default=0)


def may_loop(ids: Sequence[int]) -> bool:
    """Return False if so few tokens come again that none of their n-grams comes too often. Most
    translations need no other check.
    """
    return len(ids) - len(set(ids)) >= NGRAM_SIZE + MOST_REPEATS - 1


def loop_start(ids: Sequence[int], source_ids: Sequence[int], num_forced: int = 0) -> int | None:
    """Return the number of tokens before the loop of a translation; None of one without."""
    if not may_loop(ids):
        return None
    ngrams = Counter(zip(*(ids[start:] for start in range(NGRAM_SIZE)), strict=False))
    if max(ngrams.values()) <= MOST_REPEATS:
        return None
    repetition = LoopDetector(source_ids, num_forced)
    for token_id in ids:
        repetition.push(token_id)
    return repetition.loop_start

"""Keeps large jobs and small ones apart while both are there.

A job of many sequences fills a batch, and each of its steps takes as long as all of its rows need.
One of a sentence or a few would wait for that at every token; so while a large job is there, small
ones go into a batch of their own, and both batches step by turns.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from serving.engine.admission.fair import FairQueue
from serving.engine.generation import Generation

_PARTS_OF_SMALL_JOBS = 2


class Lane(Enum):
    """COMMON has large jobs, and small ones while there are no large ones; SMALL has small ones
    beside them.
    """

    COMMON = "common"
    SMALL = "small"


class Lanes:
    """Knows which job is large, and who is next in which lane.

    max_small_rows: of a small job. has_small_lane: an engine serves it.
    """

    def __init__(self, max_small_rows: int) -> None:
        self._max_small_rows = max_small_rows
        self.has_small_lane = False
        self._small, self._large = FairQueue(), FairQueue()
        self._rows: Counter[str] = Counter()  # of each job that has not ended
        self._large_jobs: Counter[str] = Counter()  # their rows that have not ended
        self._open: dict[Generation, FairQueue] = {}

    @property
    def num_jobs_waiting(self) -> int:
        return self._small.num_jobs + self._large.num_jobs

    @property
    def has_large(self) -> bool:
        return bool(self._large_jobs)

    def add(self, generations: Iterable[Generation]) -> None:
        generations = list(generations)
        for generation in generations:
            self._rows[generation.request.job] += generation.request.num_rows
        for generation in generations:
            request = generation.request
            is_large = self._rows[request.job] > self._max_small_rows
            queue = self._large if is_large and self.has_small_lane else self._small
            if queue is self._large:
                self._large_jobs[request.job] += request.num_rows
            self._open[generation] = queue
            queue.add(generation)

    def first(self, lane: Lane) -> Generation | None:
        return self._of(lane).first()

    def take(self, generation: Generation) -> None:
        self._open[generation].take(generation)

    def remove(self, generation: Generation) -> None:
        self._open[generation].remove(generation)

    def end(self, generation: Generation) -> None:
        """Forget a generation that has ended."""
        request = generation.request
        is_large = self._open.pop(generation) is self._large
        for counts in (self._rows, self._large_jobs) if is_large else (self._rows,):
            counts[request.job] -= request.num_rows
            if not counts[request.job]:
                del counts[request.job]

    def before(self, work: int, share: str, priority: int) -> int:
        """Return how much is done before so much work of a new job is, if nobody else comes."""
        return sum(queue.before(work, share, priority) for queue in (self._small, self._large))

    def weight(self, lane: Lane) -> float:
        """Return the part of the time that is a lane's: equal parts for all jobs, but of a small
        one twice that, as each long step that it waits for is much of its own time.
        """
        num_large, num_small = len(self._large_jobs), len(self._rows) - len(self._large_jobs)
        if not num_large or not num_small:
            return 1.0
        of_small = _PARTS_OF_SMALL_JOBS * num_small
        return (num_large if lane is Lane.COMMON else of_small) / (num_large + of_small)

    def _of(self, lane: Lane) -> FairQueue:
        if lane is Lane.SMALL:
            return self._small if self.has_large else _NOBODY
        return self._large if self.has_large else self._small


_NOBODY = FairQueue()

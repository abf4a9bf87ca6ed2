"""Queues that order waiting requests: by priority, then in fair shares by key and by job.

Fairness is counted in work, not in requests. Between keys: start-time fair queueing (Goyal, Vin and
Cheng, 1997): the key that has received least work is next, and work is charged when it is taken.
Between the jobs of a key: self-clocked fair queueing (Golestani, 1994): each request gets the time
at which it would finish if all jobs progressed at once. So a job of one sentence passes one of
thousands, and the large job still gets its share.

Large and small jobs run in separate batches while there are both: a step of a batch that a large
job fills takes long, and a small job would wait for it at every token.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count

from serving.engine.generation import Generation


@dataclass(slots=True)
class _Class:
    """The jobs whose work has the same number of binary digits: their count and their
    total work.
    """

    num_jobs: int = 0
    work: int = 0


class Backlog:
    """The waiting work of each job, in classes of about equal work, so that `before` takes the same
    time for ten thousand jobs as for ten.
    """

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._classes: dict[int, _Class] = {}
        self.work = 0

    def __len__(self) -> int:
        return len(self._left)

    def add(self, job_id: str, work: int) -> None:
        self._change(job_id, work)

    def remove(self, job_id: str, work: int) -> bool:
        """Subtract work of a job; return whether none of its work waits any more."""
        self._change(job_id, -work)
        return job_id not in self._left

    def before(self, work: int) -> int:
        """Return the work that is done before `work` of a new job: of each job this amount, or all
        of its work.
        """
        return sum(
            min(each.work, each.num_jobs * work) if size >= work.bit_length() else each.work
            for size, each in self._classes.items()
        )

    def _change(self, job_id: str, difference: int) -> None:
        before = self._left.pop(job_id, 0)
        left = before + difference
        self._count(before, -1)
        self._count(left, 1)
        self.work += difference
        if left:
            self._left[job_id] = left

    def _count(self, work: int, sign: int) -> None:
        if not work:
            return
        each = self._classes.setdefault(work.bit_length(), _Class())
        each.num_jobs += sign
        each.work += sign * work
        if not each.num_jobs:
            del self._classes[work.bit_length()]


_MIN_SECONDS = 0.25
_MAX_SECONDS = 4.0


class Throughput:
    """The recent throughput: an average that halves old measurements, so that it follows the last
    seconds. Time in which no request waits is not counted, because it does not show the capacity.
    """

    def __init__(self) -> None:
        self._work = 0.0
        self._seconds = 0.0
        self._last: float | None = None

    @property
    def work_per_second(self) -> float | None:
        """Return the rate, or None while there are too few measurements."""
        if self._seconds < _MIN_SECONDS or not self._work:
            return None
        return self._work / self._seconds

    def done(self, work: int, now: float, others_wait: bool) -> None:
        """Count a generation that has ended now."""
        if self._last is not None:
            self._work += work
            self._seconds += now - self._last
        if self._seconds > _MAX_SECONDS:
            self._work, self._seconds = self._work / 2, self._seconds / 2
        self._last = now if others_wait else None


_SPARE_ENTRIES = 64
Key = tuple[float, ...]


class KeyedQueue:
    """Orders generations by key, the lowest first; equal keys in the order of arrival.

    A removed generation stays in the heap as a dead entry until it is popped, or until more than
    half of the entries are dead.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int, Generation]] = []
        self._numbers = count()
        self._living: dict[Generation, tuple[Key, int]] = {}

    def __len__(self) -> int:
        return len(self._living)

    def add(self, key: Key, generation: Generation) -> None:
        number = next(self._numbers)
        self._living[generation] = key, number
        heappush(self._heap, (key, number, generation))

    def remove(self, generation: Generation) -> bool:
        """Remove a generation; return whether it was in the queue."""
        if self._living.pop(generation, None) is None:
            return False
        if len(self._heap) > 2 * len(self._living) + _SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._is_living(entry)]
            heapify(self._heap)
        return True

    def key_of(self, generation: Generation) -> Key:
        key, _ = self._living[generation]
        return key

    def first(self) -> Generation | None:
        while self._heap:
            if self._is_living(self._heap[0]):
                return self._heap[0][2]
            heappop(self._heap)
        return None

    def _is_living(self, entry: tuple[Key, int, Generation]) -> bool:
        key, number, generation = entry
        return self._living.get(generation) == (key, number)


class Deadlines:
    """Returns generations whose deadline has passed, at no cost while no generation has a
    deadline.
    """

    def __init__(self) -> None:
        self._queue = KeyedQueue()

    def add(self, generation: Generation) -> None:
        if generation.deadline is not None:
            self._queue.add((generation.deadline,), generation)

    def remove(self, generation: Generation) -> None:
        self._queue.remove(generation)

    def take_expired(self, now: float) -> list[Generation]:
        expired: list[Generation] = []
        while (first := self._queue.first()) is not None:
            assert first.deadline is not None
            if first.deadline > now:
                break
            self._queue.remove(first)
            expired.append(first)
        return expired


@dataclass(slots=True, eq=False)
class _Share:
    """The waiting work of one key.

    charged: virtual time of the share after the work that was taken.
    now: virtual time among its jobs.
    due: for each job, the virtual time at which its waiting work would be done.
    """

    charged: float
    now: float = 0.0
    queue: KeyedQueue = field(default_factory=KeyedQueue)
    due: dict[str, float] = field(default_factory=dict)
    backlogs: dict[int, Backlog] = field(default_factory=dict)

    def add(self, generation: Generation) -> None:
        request, work = generation.request, generation.work
        due = max(self.now, self.due.get(request.job, 0.0)) + work
        self.due[request.job] = due
        self.queue.add((request.priority, due), generation)
        self.backlogs.setdefault(request.priority, Backlog()).add(request.job, work)

    def remove(self, generation: Generation) -> None:
        request = generation.request
        self.queue.remove(generation)
        backlog = self.backlogs[request.priority]
        if backlog.remove(request.job, generation.work):
            self.due.pop(request.job, None)
        if not backlog:
            del self.backlogs[request.priority]

    def before(self, work: int, priority: int) -> int:
        return sum(each.before(work) for p, each in self.backlogs.items() if p <= priority)

    def work(self, priority: int) -> int:
        return sum(each.work for p, each in self.backlogs.items() if p <= priority)


class FairQueue:
    """A queue of generations; any of them can be removed at any time."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._now = 0.0

    @property
    def num_jobs(self) -> int:
        return sum(len(each) for share in self._shares.values() for each in share.backlogs.values())

    def add(self, generation: Generation) -> None:
        name = generation.request.share
        if name not in self._shares:
            self._forget_the_idle()
            self._shares[name] = _Share(self._now)
        self._shares[name].add(generation)

    def first(self) -> Generation | None:
        """Return the next generation."""
        active = [share for share in self._shares.values() if share.queue]
        return min(active, key=self._place).queue.first() if active else None

    def take(self, generation: Generation) -> None:
        """Remove the next generation, and charge its share and its job."""
        share = self._shares[generation.request.share]
        self._now = max(self._now, share.charged)
        share.charged = self._now + generation.work
        _, due = share.queue.key_of(generation)
        share.now = max(share.now, due)
        share.remove(generation)

    def remove(self, generation: Generation) -> None:
        """Remove a generation that is not the next one."""
        self._shares[generation.request.share].remove(generation)

    def before(self, work: int, share: str, priority: int) -> int:
        """Return the work that is done before `work` of a new job, if no other job arrives."""
        own = self._shares.get(share)
        until_done = work + (own.before(work, priority) if own else 0)
        others = (each for name, each in self._shares.items() if name != share)
        return until_done - work + sum(min(each.work(priority), until_done) for each in others)

    def _place(self, share: _Share) -> tuple[float, float]:
        first = share.queue.first()
        assert first is not None
        return first.request.priority, max(share.charged, self._now)

    def _forget_the_idle(self) -> None:
        """Remove shares that have no requests and owe no work."""
        kept = self._shares.items()
        self._shares = {n: each for n, each in kept if each.queue or each.charged > self._now}


_PARTS_OF_SMALL_JOBS = 2


class JobSize(Enum):
    """Which jobs an engine serves.

    COMMON: large jobs, and small jobs while there are no large ones. SMALL: small jobs while there
    are large ones.
    """

    COMMON = "common"
    SMALL = "small"


class JobQueues:
    """The waiting queues of small and large jobs.

    max_small_rows: a job with more rows is large.
    has_engine_for_small_jobs: without such an engine all jobs wait in one queue.
    """

    def __init__(self, max_small_rows: int) -> None:
        self._max_small_rows = max_small_rows
        self.has_engine_for_small_jobs = False
        self._small, self._large = FairQueue(), FairQueue()
        self._rows: Counter[str] = Counter()  # number of rows of each job that has not ended
        self._large_jobs: Counter[str] = Counter()  # number of their rows that have not ended
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
            queue = self._large if is_large and self.has_engine_for_small_jobs else self._small
            if queue is self._large:
                self._large_jobs[request.job] += request.num_rows
            self._open[generation] = queue
            queue.add(generation)

    def first(self, job_size: JobSize) -> Generation | None:
        return self._of(job_size).first()

    def take(self, generation: Generation) -> None:
        self._open[generation].take(generation)

    def remove(self, generation: Generation) -> None:
        self._open[generation].remove(generation)

    def end(self, generation: Generation) -> None:
        """Remove a generation that has ended."""
        request = generation.request
        is_large = self._open.pop(generation) is self._large
        for counts in (self._rows, self._large_jobs) if is_large else (self._rows,):
            counts[request.job] -= request.num_rows
            if not counts[request.job]:
                del counts[request.job]

    def before(self, work: int, share: str, priority: int) -> int:
        """Return the work that is done before `work` of a new job, if no other job arrives."""
        return sum(queue.before(work, share, priority) for queue in (self._small, self._large))

    def weight(self, job_size: JobSize) -> float:
        """Return the fraction of processor time for jobs of this size: equal shares for all jobs,
        but double shares for small ones, because a long step delays them most.
        """
        num_large, num_small = len(self._large_jobs), len(self._rows) - len(self._large_jobs)
        if not num_large or not num_small:
            return 1.0
        of_small = _PARTS_OF_SMALL_JOBS * num_small
        return (num_large if job_size is JobSize.COMMON else of_small) / (num_large + of_small)

    def _of(self, job_size: JobSize) -> FairQueue:
        if job_size is JobSize.SMALL:
            return self._small if self.has_large else _EMPTY_QUEUE
        return self._large if self.has_large else self._small


_EMPTY_QUEUE = FairQueue()

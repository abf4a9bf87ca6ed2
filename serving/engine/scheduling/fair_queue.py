"""Queues that order waiting requests: by priority, then in fair shares by account and by job.

Fairness is counted in work, not in requests. Between accounts: start-time fair queueing (Goyal, Vin
and Cheng, 1997): the account that has received least work is next, and work is charged when it is
taken. Between the jobs of an account: self-clocked fair queueing (Golestani, 1994): each request
gets the time at which it would finish if all jobs progressed at once. So a job of one sentence
passes one of thousands, and the large job still gets its share.

Large and small jobs run in separate batches while there are both: a step of a batch that a large
job fills takes long, and a small job would wait for it at every token.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from serving.engine.generation import Generation
from serving.engine.scheduling.backlog import Backlog

# Empty entries that a heap may have at any size: so it is rebuilt at most once in so many removals.
_MAX_SPARE_ENTRIES = 64
# So many reports of other replicas are the most that an account is behind because of them.
_MAX_REPORTS_BEHIND = 10
# Small jobs get twice the time of large ones, because a long step delays them most.
_WEIGHT_OF_SMALL_JOBS = 2

SortKey = tuple[float, ...]


class RemovableHeap:
    """Generations by key, the lowest first; equal keys in the order of arrival.

    Any generation can be removed: its entry stays in the heap without it (see the notes on priority
    queues in Python's documentation of `heapq`) until it comes to the top, or until more than half
    of the entries are empty.

    first: the generation with the lowest key; None if there is none.
    """

    def __init__(self) -> None:
        self.first: Generation | None = None
        self._heap: list[list[Any]] = []  # [key, number, generation, or None if it was removed]
        self._entries: dict[Generation, list[Any]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: SortKey, generation: Generation) -> None:
        entry = [key, next(self._numbers), generation]
        self._entries[generation] = entry
        heappush(self._heap, entry)
        self.first = self._heap[0][2]

    def remove(self, generation: Generation) -> SortKey:
        """Remove a generation and return its key."""
        entry = self._entries.pop(generation)
        entry[2] = None
        if len(self._heap) > 2 * len(self._entries) + _MAX_SPARE_ENTRIES:
            self._heap = [*self._entries.values()]
            heapify(self._heap)
        while self._heap and self._heap[0][2] is None:
            heappop(self._heap)
        self.first = self._heap[0][2] if self._heap else None
        key: SortKey = entry[0]
        return key


@dataclass(slots=True, eq=False)
class _Share:
    """The waiting requests of one account.

    charged: virtual time of the account, after the work that was taken.
    now: virtual time among its jobs.
    finish_times: for each job, the virtual time at which its waiting work would be done.
    backlogs: the waiting work by priority.
    """

    charged: float
    now: float = 0.0
    waiting: RemovableHeap = field(default_factory=RemovableHeap)
    finish_times: dict[str, float] = field(default_factory=dict)
    backlogs: defaultdict[int, Backlog] = field(default_factory=lambda: defaultdict(Backlog))


class WaitingQueue:
    """Waiting generations in the order in which they are due. Any of them can be removed.

    taken_work: of each account, all that was ever taken.
    """

    def __init__(self) -> None:
        self.taken_work: Counter[str] = Counter()
        self._shares: dict[str, _Share] = {}
        self._now = 0.0  # virtual time among the accounts

    @property
    def num_jobs(self) -> int:
        shares = self._shares.values()
        return sum(backlog.num_jobs for share in shares for backlog in share.backlogs.values())

    def add(self, generation: Generation) -> None:
        request, work = generation.request, generation.work
        share = self._shares.get(request.share)
        if share is None:
            share = self._open_share(request.share)
        finish_time = max(share.now, share.finish_times.get(generation.job, 0.0)) + work
        share.finish_times[generation.job] = finish_time
        share.waiting.add((request.priority, finish_time), generation)
        share.backlogs[request.priority].change(generation.job, work)

    def first(self) -> Generation | None:
        """Return the next generation: the most urgent one; among equally urgent ones that of the
        account that has received least work.
        """
        best, lowest = None, (0.0, 0.0)
        for share in self._shares.values():
            first = share.waiting.first
            if first is not None:
                key = first.request.priority, max(share.charged, self._now)
                if best is None or key < lowest:
                    best, lowest = first, key
        return best

    def remove(self, generation: Generation, is_next: bool) -> None:
        """Remove a generation. is_next: it is the first one and will be run, so its account and its
        job are charged.
        """
        request = generation.request
        share = self._shares[request.share]
        _, finish_time = share.waiting.remove(generation)
        if is_next:
            self._now = max(self._now, share.charged)
            share.charged = self._now + generation.work
            self.taken_work[request.share] += generation.work
            share.now = max(share.now, finish_time)
        backlog = share.backlogs[request.priority]
        if not backlog.change(generation.job, -generation.work):
            share.finish_times.pop(generation.job, None)
        if not backlog.work:
            del share.backlogs[request.priority]

    def charge(self, account: str, work: int) -> None:
        """Charge an account that waits with work that it has received in other replicas since the
        last report. Without a bound it would get nothing for as long as it received more.
        """
        share = self._shares.get(account)
        if share is not None:
            start = max(share.charged, self._now)
            most = self._now + _MAX_REPORTS_BEHIND * work
            share.charged = max(start, min(start + work, most))

    def work_before(self, work: int, account: str, priority: int) -> int:
        """Return the work that is done before `work` of a new job, if no other job arrives: of the
        account's own jobs each as much, or all that it has; of another account as much as the
        account itself waits for.
        """
        own_share = self._shares.get(account)
        own_backlogs = own_share.backlogs if own_share is not None else {}
        before = sum(b.work_before(work) for p, b in own_backlogs.items() if p <= priority)
        until_done = before + work
        for name, share in self._shares.items():
            if name != account:
                waiting = sum(b.work for p, b in share.backlogs.items() if p <= priority)
                before += min(waiting, until_done)
        return before

    def _open_share(self, account: str) -> _Share:
        """Add the share of an account, after removing those that wait for nothing and owe no
        work.
        """
        shares = self._shares.items()
        self._shares = {n: s for n, s in shares if s.waiting.first or s.charged > self._now}
        share = self._shares[account] = _Share(self._now)
        return share


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
    large_jobs: for each large job that has not ended, the rows of its generations in the queue of
        large jobs, waiting or taken.
    """

    def __init__(self, max_small_rows: int) -> None:
        self._max_small_rows = max_small_rows
        self.has_engine_for_small_jobs = False
        self.large_jobs: Counter[str] = Counter()
        self._small, self._large = WaitingQueue(), WaitingQueue()
        self._rows: Counter[str] = Counter()  # of each job that has not ended
        self._queues: dict[Generation, WaitingQueue] = {}  # of each generation that has not ended

    @property
    def num_jobs_waiting(self) -> int:
        return self._small.num_jobs + self._large.num_jobs

    def add(self, generations: Sequence[Generation]) -> None:
        for generation in generations:
            self._rows[generation.job] += generation.num_rows
        for generation in generations:
            queue = self._small
            if self.has_engine_for_small_jobs and self._rows[generation.job] > self._max_small_rows:
                queue = self._large
                self.large_jobs[generation.job] += generation.num_rows
            self._queues[generation] = queue
            queue.add(generation)

    def first(self, job_size: JobSize) -> Generation | None:
        """Return the next generation for engines that serve jobs of this size."""
        if job_size is JobSize.SMALL:
            return self._small.first() if self.large_jobs else None
        return (self._large if self.large_jobs else self._small).first()

    def remove(self, generation: Generation, is_next: bool) -> None:
        """Remove a waiting generation; is_next: see `WaitingQueue.remove`."""
        self._queues[generation].remove(generation, is_next)

    @property
    def taken_work(self) -> Counter[str]:
        """Return the work of each account that was ever taken."""
        return self._small.taken_work + self._large.taken_work

    def charge(self, account: str, work: int) -> None:
        """Charge an account with work that it has received in other replicas."""
        for queue in (self._small, self._large):
            queue.charge(account, work)

    def end(self, generation: Generation) -> None:
        """Forget a generation that has ended."""
        counts = [self._rows]
        if self._queues.pop(generation) is self._large:
            counts.append(self.large_jobs)
        for rows_of_jobs in counts:
            rows_of_jobs[generation.job] -= generation.num_rows
            if not rows_of_jobs[generation.job]:
                del rows_of_jobs[generation.job]

    def work_before(self, work: int, account: str, priority: int) -> int:
        """Return the work that is done before `work` of a new job, if no other job arrives."""
        queues = (self._small, self._large)
        return sum(queue.work_before(work, account, priority) for queue in queues)

    def weight(self, job_size: JobSize) -> float:
        """Return the fraction of processor time for jobs of this size: the same for each job of a
        size.
        """
        num_large, num_small = len(self.large_jobs), len(self._rows) - len(self.large_jobs)
        if not num_large or not num_small:
            return 1.0
        of_small = _WEIGHT_OF_SMALL_JOBS * num_small
        return (num_large if job_size is JobSize.COMMON else of_small) / (num_large + of_small)

"""Counts what waits, job by job, so that one can ask how much of it comes before a new job."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Class:
    """Holds the jobs whose work has as many binary digits: how many, and their work together."""

    num_jobs: int = 0
    work: int = 0


class Backlog:
    """Knows the work that each job has waiting, in classes of about equal work: to ask takes as
    long for ten thousand jobs as for ten.
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
        """Take work of a job away; return whether none of it waits any more."""
        self._change(job_id, -work)
        return job_id not in self._left

    def before(self, work: int) -> int:
        """Return how much is done before so much work of a new job is: of each job as much as that,
        or all it has.
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

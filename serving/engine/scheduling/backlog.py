"""Estimate how long a new request would wait: the waiting work, and the recent throughput."""

from dataclasses import dataclass

# The rate of less time than the first says too little; measurements are halved at the second, so
# that they follow a load that changes within seconds, but not the lengths of single requests.
_MIN_SECONDS = 0.25
_MAX_SECONDS = 4.0


@dataclass(slots=True)
class _JobClass:
    """The jobs whose work has the same number of binary digits: their count and their work."""

    num_jobs: int = 0
    work: int = 0


class Backlog:
    """The waiting work of each job, in classes of about equal work, so that `work_before` takes the
    same time for ten thousand jobs as for ten.

    work: of all jobs.
    """

    def __init__(self) -> None:
        self.work = 0
        self._work_of_jobs: dict[str, int] = {}
        self._classes: dict[int, _JobClass] = {}

    @property
    def num_jobs(self) -> int:
        return len(self._work_of_jobs)

    def change(self, job: str, difference: int) -> int:
        """Add work of a job, or subtract it if it is negative; return the work of the job that
        waits now.
        """
        before = self._work_of_jobs.pop(job, 0)
        now = before + difference
        self.work += difference
        if before:
            old_class = self._classes[before.bit_length()]
            old_class.num_jobs -= 1
            old_class.work -= before
            if not old_class.num_jobs:
                del self._classes[before.bit_length()]
        if now:
            new_class = self._classes.setdefault(now.bit_length(), _JobClass())
            new_class.num_jobs += 1
            new_class.work += now
            self._work_of_jobs[job] = now
        return now

    def work_before(self, work: int) -> int:
        """Return the work that is done before `work` of a new job: of each job this amount, or all
        of its work. It may be up to twice as much as that, because jobs are counted by classes.
        """
        size = work.bit_length()
        return sum(
            min(jobs.work, jobs.num_jobs * work) if job_size >= size else jobs.work
            for job_size, jobs in self._classes.items()
        )


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

    def record(self, work: int, now: float, others_wait: bool) -> None:
        """Count a generation that has ended now."""
        if self._last is not None:
            self._work += work
            self._seconds += now - self._last
        if self._seconds > _MAX_SECONDS:
            self._work, self._seconds = self._work / 2, self._seconds / 2
        self._last = now if others_wait else None

"""Estimates of how long waiting work takes: padded lengths, the backlog and the throughput."""

from collections.abc import Iterator
from dataclasses import dataclass

from serving.engine.generation import Generation

ENCODE_STEP = 4
# More is worth another run. 64 would be up to 4 % faster for encoders whose linear layers leave
# padding out, which gain 16 to 25 % by 32; recurrent ones lose 5 % by 32, and 13 % by 64.
MOST_PADDING = 32


def encode_span(generation: Generation) -> int:
    """Return the padded length of a source that is encoded alone: a multiple of 4, coarser as it
    grows, at most an eighth too long from 16 on.
    """
    length = generation.num_source_tokens
    step = max(ENCODE_STEP, 1 << max(length - 1, 0).bit_length() >> 4)
    return -(-length // step) * step


def encode_groups(generations: list[Generation], most_tokens: int) -> Iterator[list[Generation]]:
    """Split into batches, the longest source last, which are padded to its span and then have at
    most `most_tokens`.
    """
    group: list[Generation] = []
    for generation in sorted(generations, key=encode_span):
        if group and not _joins(generation, group, most_tokens):
            yield group
            group = []
        group.append(generation)
    if group:
        yield group


def _joins(generation: Generation, group: list[Generation], most_tokens: int) -> bool:
    """Tell whether little padding is needed to encode a longer source with the others."""
    span = encode_span(generation)
    padding = len(group) * (span - encode_span(group[-1]))
    return padding <= MOST_PADDING and (len(group) + 1) * span <= most_tokens


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


_MIN_SECONDS = 0.25
_MAX_SECONDS = 4.0


class Throughput:
    """Forgets by halves, so that it follows what the last seconds were like. Time in which nobody
    waits says nothing of how much could be done in it.
    """

    def __init__(self) -> None:
        self._work = 0.0
        self._seconds = 0.0
        self._last: float | None = None

    @property
    def work_per_second(self) -> float | None:
        """Return the rate, None while there is too little to tell from."""
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

"""Orders who waits: the urgent first, then shares by turns, and within a share jobs by turns.

Turns are taken in work, not in requests. Shares by start-time fair queueing (Goyal, Vin and Cheng,
1997): who is furthest behind is next, and the work is charged as it is taken. Jobs, which come and
go, by self-clocked fair queueing (Golestani, 1994): everything gets the time at which it would be
done if all jobs went on at once, and goes in that order; so a job of one sentence passes one of
thousands, and that one gets its part beside any number of small ones.
"""

from dataclasses import dataclass, field

from serving.engine.admission.backlog import Backlog
from serving.engine.admission.queues import KeyedQueue
from serving.engine.generation import Generation


@dataclass(slots=True, eq=False)
class _Share:
    """Holds what waits of one share. charged: its time among the shares, after what was taken of
    it. now: the time among its jobs. due: of each of these, when what waits of it would be done.
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
    """Holds generations; any of them can be taken out at any time."""

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
        """Return who comes next."""
        active = [share for share in self._shares.values() if share.queue]
        return min(active, key=self._place).queue.first() if active else None

    def take(self, generation: Generation) -> None:
        """Remove who came next, and charge its share and its job for it."""
        share = self._shares[generation.request.share]
        self._now = max(self._now, share.charged)
        share.charged = self._now + generation.work
        _, due = share.queue.key_of(generation)
        share.now = max(share.now, due)
        share.remove(generation)

    def remove(self, generation: Generation) -> None:
        """Remove whoever leaves without having come up."""
        self._shares[generation.request.share].remove(generation)

    def before(self, work: int, share: str, priority: int) -> int:
        """Return how much is done before so much work of a new job is, if nobody else comes."""
        own = self._shares.get(share)
        until_done = work + (own.before(work, priority) if own else 0)
        others = (each for name, each in self._shares.items() if name != share)
        return until_done - work + sum(min(each.work(priority), until_done) for each in others)

    def _place(self, share: _Share) -> tuple[float, float]:
        first = share.queue.first()
        assert first is not None
        return first.request.priority, max(share.charged, self._now)

    def _forget_the_idle(self) -> None:
        """Drop shares that have nothing here and are behind nobody."""
        kept = self._shares.items()
        self._shares = {n: each for n, each in kept if each.queue or each.charged > self._now}

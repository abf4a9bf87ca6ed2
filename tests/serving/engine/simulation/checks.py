"""What must hold after every step of the engines, whatever happens."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from serving.engine.engine import Engine
from serving.engine.generation import Generation
from serving.engine.scheduling.scheduler import Scheduler

_LONGEST_REST = 80  # turns: that nobody else had finished a step by then would be a wonder


def check_counts(scheduler: Scheduler, engines: Sequence[Engine]) -> None:
    """No row, request or entry of a queue is lost, or belongs to two."""
    waiting = scheduler._waiting
    held = [engine._queue._taken for engine in engines]
    open_ids = [*waiting, *(name for each in held for name in each)]
    assert len(open_ids) == len({*open_ids}), "a request belongs to two"
    assert {*open_ids} == scheduler._open_ids
    rows = sum(each.request.num_rows for each in waiting.values())
    assert scheduler._num_waiting_rows == rows
    assert scheduler.waiting_work == sum(each.work for each in waiting.values())
    for engine, taken in zip(engines, held, strict=True):
        assert engine._queue.num_rows == sum(each.request.num_rows for each in taken.values())
        assert engine._batch.num_rows <= engine.scheduler.slots
        assert {*engine._batch.generations} <= {*taken.values()}, "a row of a request that ended"


def check_rest(scheduler: Scheduler, engines: Sequence[Engine]) -> None:
    """Everything has ended: nothing is kept for it."""
    check_counts(scheduler, engines)
    assert not scheduler._open_ids
    assert scheduler._deadlines.take_expired(float("inf")) == []
    queues = scheduler._job_queues
    assert not queues._open and not queues._rows and not queues._large_jobs
    assert queues.num_jobs_waiting == 0
    for engine in engines:
        assert engine._batch.num_rows == 0 and not engine._admission.underway
        assert engine._queue._deadlines.take_expired(float("inf")) == []
        assert not engine._queue.has_work


class RestCheck:
    """No engine rests for long while there is work that it may take."""

    def __init__(self) -> None:
        self._turns: Counter[Engine] = Counter()

    def check(self, resting: Iterable[Engine]) -> None:
        """resting: the engines whose threads wait for a command that is not there."""
        idle = {engine for engine in resting if engine._queue.has_work}
        for engine in [*self._turns.keys() - idle]:
            del self._turns[engine]
        self._turns.update(idle)
        assert max(self._turns.values(), default=0) < _LONGEST_REST, "an engine rests beside work"


class FairnessCheck:
    """Nobody is overtaken by less urgent requests, nor for long by those of another key.

    Between two turns of a key that waits, another of the same priority gets no more work than one
    request of each (start-time fair queueing).
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._queues = scheduler, scheduler._job_queues
        self._take = self._queues.take
        self._queues.take = self._checked  # type: ignore[method-assign, assignment]
        self._lead: defaultdict[tuple[object, str, str], int] = defaultdict(int)
        self._most_work = 0

    def _checked(self, taken: Generation) -> None:
        queue = self._queues._open[taken]
        others = [
            each
            for each in self._scheduler._waiting.values()
            if each is not taken and self._queues._open[each] is queue
        ]
        priority = taken.request.priority
        assert all(each.request.priority >= priority for each in others), "overtaken"
        self._most_work = max([self._most_work, taken.work, *(each.work for each in others)])
        share = taken.request.share
        waiting = {each.request.share for each in others if each.request.priority == priority}
        self._forget(queue, share, waiting)
        for other in waiting - {share}:
            self._lead[queue, share, other] += taken.work
            assert self._lead[queue, share, other] <= 2 * self._most_work, "unfair"
        self._take(taken)

    def _forget(self, queue: object, served: str, waiting: set[str]) -> None:
        for key in [*self._lead]:
            if key[0] is queue and (key[2] == served or key[2] not in waiting):
                del self._lead[key]

"""What must hold after every step of the engines, whatever happens."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from serving.engine.engine import Engine
from serving.engine.fair_share import Account, FairShare, ProcessorTurns
from serving.engine.generation import Generation
from serving.engine.scheduling.scheduler import Scheduler

_LONGEST_REST = 80  # turns: that nobody else had finished a step by then would be a wonder


def check_counts(scheduler: Scheduler, engines: Sequence[Engine]) -> None:
    """No row, request or entry of a queue is lost, or belongs to two."""
    waiting = scheduler.waiting
    running_by_engine = [engine._queue._running for engine in engines]
    open_ids = [*waiting, *(name for each in running_by_engine for name in each)]
    assert len(open_ids) == len({*open_ids}), "a request belongs to two"
    assert {*open_ids} == scheduler._open_ids
    rows = sum(each.request.num_rows for each in waiting.values())
    assert scheduler.num_waiting_rows == rows
    assert scheduler.waiting_work == sum(each.work for each in waiting.values())
    for engine, generations in zip(engines, running_by_engine, strict=True):
        assert engine._queue.num_rows == sum(each.request.num_rows for each in generations.values())
        assert engine._batch.num_rows <= engine.scheduler.slots
        assert {*engine._batch.generations} <= {*generations.values()}, (
            "a row of a request that ended"
        )


def check_rest(scheduler: Scheduler, engines: Sequence[Engine]) -> None:
    """Everything has ended: nothing is kept for it."""
    check_counts(scheduler, engines)
    assert not scheduler._open_ids
    assert not scheduler.deadlines
    queues = scheduler.job_queues
    assert not queues._queues and not queues._rows and not queues.large_jobs
    assert queues.num_jobs_waiting == 0
    for engine in engines:
        assert engine._batch.num_rows == 0 and not engine._admission.prefilling
        assert not engine._queue._deadlines
        assert not engine._queue._running


def check_deadlines(engine: Engine, began: float) -> None:
    """After a step, the deadline of no request had passed when the step began."""
    open_ones = [*engine.scheduler.waiting.values(), *engine._queue._running.values()]
    late = [
        generation.request_id for generation in open_ones if (generation.deadline or began) < began
    ]
    assert not late, f"their deadlines have passed: {late}"


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
        self._scheduler, self._queues = scheduler, scheduler.job_queues
        self._remove = self._queues.remove
        self._queues.remove = self._remove_checked  # type: ignore[method-assign]
        self._lead: defaultdict[tuple[object, str, str], int] = defaultdict(int)
        self._most_work = 0

    def _remove_checked(self, generation: Generation, is_next: bool) -> None:
        if is_next:
            self._check(generation)
        self._remove(generation, is_next)

    def _check(self, next_generation: Generation) -> None:
        queue = self._queues._queues[next_generation]
        others = [
            generation
            for generation in self._scheduler.waiting.values()
            if generation is not next_generation and self._queues._queues[generation] is queue
        ]
        priority = next_generation.request.priority
        assert all(generation.request.priority >= priority for generation in others), "overtaken"
        self._most_work = max(
            [self._most_work, next_generation.work, *(generation.work for generation in others)]
        )
        share = next_generation.request.share
        waiting = {
            generation.request.share
            for generation in others
            if generation.request.priority == priority
        }
        self._forget(queue, share, waiting)
        for other in waiting - {share}:
            self._lead[queue, share, other] += next_generation.work
            assert self._lead[queue, share, other] <= 2 * self._most_work, "unfair"

    def _forget(self, queue: object, served: str, waiting: set[str]) -> None:
        for key in [*self._lead]:
            if key[0] is queue and (key[2] == served or key[2] not in waiting):
                del self._lead[key]


class ShareCheck:
    """No more processors are used than there are, and no model that waits for them is left behind.

    While a model waits, another gets no more time than a few of its steps take, over its part of
    the model's share: as many as it has engines, and two to catch up.
    """

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._running: set[ProcessorTurns] = set()
        self._sizes: Counter[Account] = Counter()
        self._lead: defaultdict[tuple[Account, Account], float] = defaultdict(float)
        self._longest = 0.0
        self._join, self._acquire, self._release = share.join, share.acquire, share.release
        self._charge = share._charge
        share.join = self.join  # type: ignore[method-assign, assignment]
        share.acquire, share.release = self.acquire, self.release  # type: ignore[method-assign]
        share._charge = self.charge  # type: ignore[method-assign]

    def join(self, *arguments: Any) -> list[ProcessorTurns]:
        joined = self._join(*arguments)
        self._sizes.update(turns.account for turns in joined)
        return joined

    def acquire(self, turns: ProcessorTurns) -> None:
        self._acquire(turns)
        self._running.add(turns)
        used = sum(running.threads for running in self._running)
        assert used + self._share._num_free == self._share._num_cpus and self._share._num_free >= 0
        for pair in [*self._lead]:
            if pair[1] is turns.account:
                del self._lead[pair]

    def release(self, turns: ProcessorTurns, seconds: float) -> None:
        self._release(turns, seconds)
        self._running.discard(turns)

    def charge(self, turns: ProcessorTurns, seconds: float) -> None:
        cost = seconds * turns.threads / turns.account.weight()
        self._longest = max(self._longest, cost)
        most = (self._sizes[turns.account] + 2) * self._longest
        waiting = {waiting_turns.account for waiting_turns in self._share._waiting} - {
            turns.account
        }
        for other in waiting:
            self._lead[turns.account, other] += cost
            assert self._lead[turns.account, other] <= most, "a model is left behind"
        for pair in [*self._lead]:
            if pair[0] is turns.account and pair[1] not in waiting:
                del self._lead[pair]
        self._charge(turns, seconds)

"""The scheduler of one bundle: a single waiting queue for all of its engines.

Requests with the lowest `priority` are first; among equals, jobs take turns (`fair_queue.py`). The
first request is never overtaken, even if it waits for more rows than the next one needs. Waiting
does not raise a priority: while urgent requests fill every slot, the others wait.

The waiting time is bounded: a request whose estimated waiting time is too long is refused at once
(`backlog.py`).

The engines run on their own threads. A waiting request belongs to the scheduler, a request that an
engine has taken belongs to that engine until it ends. All methods are thread-safe.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from serving.bundle.manifest import Manifest
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.scheduling.backlog import Throughput
from serving.engine.scheduling.fair_queue import JobQueues, JobSize, RemovableHeap
from serving.engine.scheduling.source_batches import encode_span
from serving.engine.scheduling.validation import EncodingRequestValidator, RequestValidator
from serving.errors import DeviceError, EngineError, Overloaded, RequestError
from serving.requests.request import (
    AbortedEvent,
    Event,
    FailedEvent,
    FinalEvent,
    FinishedEvent,
    GenerationRequest,
)

# Jobs of up to 1 / 8 of the slots are small: of 64 slots, a step over such a job takes a sixth of
# the time of one over all slots (3 and 18 ms).
_SMALL_PART = 8
# Source tokens of a large job in one encoder run: 200 take as long per token as 1,000 (40 us), and
# delay other requests only a fifth as long.
_ENCODE_TOKENS_OF_LARGE_JOBS = 128

logger = logging.getLogger(__name__)


class Scheduler:
    """The waiting queue of one bundle: accepted generations that no engine has taken yet.

    waiting: these generations, by request id.
    deadlines: those of them that have one.
    num_waiting_rows, waiting_work: the sums of their rows and of their work.
    job_queues: their order; it also knows the jobs of generations that engines have taken.
    engine_queues: the queues of engines that share the generations of large jobs.
    lock: held while any of these is read or changed.
    """

    def __init__(
        self,
        manifest: Manifest,
        config: EngineConfig,
        slots: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """slots: number of rows of each engine."""
        self.config, self.slots = config, slots
        validator = EncodingRequestValidator if manifest.task.only_encodes else RequestValidator
        self._validator = validator(manifest, slots, config.timeout_seconds, config.prefill_chunk)
        self.waiting: dict[str, Generation] = {}
        self.deadlines = RemovableHeap()
        self.num_waiting_rows = self.waiting_work = 0
        self.job_queues = JobQueues(max(1, slots // _SMALL_PART))
        self.engine_queues: list[EngineQueue] = []
        self.lock = threading.RLock()
        self._throughput, self._clock = Throughput(), clock
        self._open_ids: set[str] = set()  # of all generations that have not ended

    def __len__(self) -> int:
        return len(self.waiting)

    def queue_for_engine(
        self,
        job_size: JobSize = JobSize.COMMON,
        leave: Callable[[Generation], None] | None = None,
    ) -> "EngineQueue":
        """Return the queue from which one more engine takes generations.

        leave: removes a generation from the engine, before its time; None if an engine ends
            generations in the step in which it takes them.
        """
        queue = EngineQueue(self, job_size, leave)
        if job_size is JobSize.COMMON:
            self.engine_queues.append(queue)
        else:
            self.job_queues.has_engine_for_small_jobs = True
        return queue

    @property
    def num_busy_engines(self) -> int:
        """Return the number of engines that have taken generations which have not ended."""
        return sum(queue.num_rows > 0 for queue in self.engine_queues)

    def accept(self, requests: Sequence[GenerationRequest], now: float) -> list[Generation]:
        """Validate requests and return their generations. Raises RequestError."""
        return [self._validator.accept(request, now) for request in requests]

    def add(self, generations: Sequence[Generation]) -> None:
        """Add generations to the waiting queue, all or none. Raises RequestError, and Overloaded
        unless they go on with a job that was accepted before.
        """
        if not generations:
            return
        new_ids: set[str] = set()
        jobs: set[str] = set()
        work = num_rows = 0
        with self.lock:
            for generation in generations:
                if generation.request_id in self._open_ids or generation.request_id in new_ids:
                    raise RequestError("request_id", generation.request_id, "is in use")
                new_ids.add(generation.request_id)
                jobs.add(generation.job)
                work += generation.work
                num_rows += generation.num_rows
            request = generations[0].request
            if request.job_accepted_at is None:
                self.check_room(work, request.share, request.priority, len(generations), len(jobs))
            self._open_ids |= new_ids
            self.num_waiting_rows += num_rows
            self.waiting_work += work
            self.job_queues.add(generations)
            for generation in generations:
                self.waiting[generation.request_id] = generation
                if generation.deadline is not None:
                    self.deadlines.add((generation.deadline,), generation)

    def check_room(
        self, work: int, account: str, priority: int, num_requests: int = 1, num_jobs: int = 1
    ) -> None:
        """Raise Overloaded if jobs with `work` tokens would be refused now: if too many jobs wait,
        or if they would wait too long. Requests do not wait while rows are free.
        """
        with self.lock:
            num_free = sum(self.slots - queue.num_rows for queue in self.engine_queues)
            if len(self.waiting) + num_requests <= num_free:
                return
            num_waiting, most = self.job_queues.num_jobs_waiting, self.config.max_waiting
            rate = self._throughput.work_per_second
            before = self.job_queues.work_before(work, account, priority)
            seconds = before / rate if rate else 0.0  # no throughput is known at the beginning
            if most is not None and num_waiting + num_jobs > most + num_free:
                raise Overloaded(num_waiting, seconds or 1.0, is_for_all=True)
            if self._waits_too_long(work, account, priority):
                ordinary_work = min(work, self.waiting_work // max(1, len(self.waiting)))
                is_for_all = self._waits_too_long(ordinary_work, account, priority)
                raise Overloaded(num_waiting, seconds, is_for_all)

    def taken_work(self) -> Counter[str]:
        """Return the work of each account that engines have ever taken."""
        with self.lock:
            return self.job_queues.taken_work

    def charge(self, account: str, work: int) -> None:
        """Charge an account that waits with work that it has received elsewhere."""
        with self.lock:
            self.job_queues.charge(account, work)

    def weight(self, job_size: JobSize) -> float:
        """Return the share of the engines' time for jobs of this size."""
        with self.lock:
            return self.job_queues.weight(job_size)

    def remove(self, generation: Generation, is_next: bool) -> None:
        """Remove a generation from the waiting queue, for an engine. The caller has the lock.

        is_next: it was the next one of its queue, and will be run.
        """
        del self.waiting[generation.request_id]
        if generation.deadline is not None:
            self.deadlines.remove(generation)
        self.num_waiting_rows -= generation.num_rows
        self.waiting_work -= generation.work
        self.job_queues.remove(generation, is_next)

    def end(self, generation: Generation, is_finished: bool) -> None:
        """Forget a generation that has ended. Its request id may be used again. The caller has the
        lock.

        is_finished: it ended normally, so its work counts as throughput.
        """
        if is_finished:
            self._throughput.record(generation.work, self._clock(), bool(self.waiting))
        self._open_ids.discard(generation.request_id)
        self.job_queues.end(generation)

    def _waits_too_long(self, work: int, account: str, priority: int) -> bool:
        """Return whether the estimated waiting time exceeds `max_wait_seconds` plus the time for
        the work itself.
        """
        rate, most = self._throughput.work_per_second, self.config.max_wait_seconds
        if rate is None or most is None:
            return False
        return self.job_queues.work_before(work, account, priority) / rate > most + work / rate


class EngineQueue:
    """What one engine has taken from the scheduler, and the events that it has not returned yet.
    Every generation that it takes gets one final event.

    num_rows: rows that the taken generations use or may use.
    events: in order; a final event is added by the methods that end generations.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        job_size: JobSize,
        leave: Callable[[Generation], None] | None = None,
    ) -> None:
        """leave: see `Scheduler.queue_for_engine`."""
        self.num_rows = 0
        self.events: list[Event] = []
        self._scheduler, self._job_size, self._leave = scheduler, job_size, leave
        self._running: dict[str, Generation] = {}
        self._deadlines = RemovableHeap()

    @property
    def num_waiting(self) -> int:
        """Return the number of generations that no engine has taken yet."""
        return len(self._scheduler.waiting)

    @property
    def has_work(self) -> bool:
        """Return whether the engine has generations, or events, or may take a generation."""
        if self._running or self.events:
            return True
        if not self._scheduler.waiting:
            return False
        with self._scheduler.lock:
            return self._scheduler.job_queues.first(self._job_size) is not None

    @property
    def first(self) -> Generation | None:
        """Return the generation that this engine should take next; None if there is none, or if
        another engine has fewer rows.

        Rows are distributed evenly. Otherwise the first engine would take all generations, and the
        other engines would be idle.
        """
        if not self._scheduler.waiting:
            return None
        scheduler, job_size = self._scheduler, self._job_size
        with scheduler.lock:
            first = scheduler.job_queues.first(job_size)
            queues = scheduler.engine_queues
            if first is None or job_size is JobSize.SMALL or len(queues) == 1:
                return first
            num_rows = scheduler.num_waiting_rows + sum(queue.num_rows for queue in queues)
            return first if self.num_rows * len(queues) < num_rows else None

    def take(self, generation: Generation) -> bool:
        """Take the first generation; return False if another engine was faster."""
        with self._scheduler.lock:
            if generation.request_id not in self._scheduler.waiting:
                return False
            self._take(generation, is_next=True)
            return True

    def take_sources(self, num_free: int) -> list[Generation]:
        """Take the generations whose sources are encoded before the next step: as many as free rows
        and the token budget allow, at least one if a row is free. A window of sound that equals
        the one before it, as those of several samples do, costs nothing.
        """
        generations: list[Generation] = []
        num_tokens, most = 0, self._scheduler.config.max_encode_tokens
        with self._scheduler.lock:
            if self._scheduler.job_queues.large_jobs:
                most = min(most, _ENCODE_TOKENS_OF_LARGE_JOBS)
            while (candidate := self.first) is not None:
                num_free -= candidate.num_rows
                sound = candidate.request.audio
                if sound is None or not generations or sound != generations[-1].request.audio:
                    num_tokens += encode_span(candidate)
                if num_free < 0 or (generations and num_tokens > most):
                    break
                self._take(candidate, is_next=True)
                generations.append(candidate)
        return generations

    def take_events(self) -> list[Event]:
        """Return and remove all events."""
        events, self.events = self.events, []
        return events

    def end(self, generation: Generation, final_event: FinalEvent) -> None:
        """End a generation that has left the engine."""
        with self._scheduler.lock:
            del self._running[generation.request_id]
            if generation.deadline is not None:
                self._deadlines.remove(generation)
            self.num_rows -= generation.num_rows
            self._scheduler.end(generation, type(final_event) is FinishedEvent)
        self.events.append(final_event)

    def cancel(self, request_id: str) -> None:
        """Abort a request if it waits or belongs to this engine; ignore one that has ended."""
        with self._scheduler.lock:
            waiting = self._scheduler.waiting.get(request_id)
            if waiting is not None:
                self._take(waiting, is_next=False)
            generation = self._running.get(request_id)
        if generation is not None:
            self._abort(generation)

    def cancel_all(self) -> None:
        """Abort all requests that wait or belong to this engine."""
        with self._scheduler.lock:
            for generation in [*self._scheduler.waiting.values()]:
                self._take(generation, is_next=False)
        for generation in [*self._running.values()]:
            self._abort(generation)

    def expire(self, now: float) -> int:
        """End the generations whose deadline has passed, waiting ones and those of this engine;
        return their number.
        """
        with self._scheduler.lock:
            while (generation := _first_expired(self._scheduler.deadlines, now)) is not None:
                self._take(generation, is_next=False)
        num_expired = 0
        while (generation := _first_expired(self._deadlines, now)) is not None:
            if self._leave is not None:
                self._leave(generation)
            self.end(generation, generation.expired_event())
            num_expired += 1
        return num_expired

    def fail(self, generations: list[Generation], error: Exception) -> None:
        """End generations that have left the engine with an error. The engine goes on, unless its
        device has failed: then all later runs would fail too, and the error is raised.
        """
        if isinstance(error, DeviceError):
            raise error
        logger.error("%d requests failed", len(generations), exc_info=error)
        for generation in generations:
            failure = error
            if not isinstance(error, EngineError):
                failure = EngineError(f"{type(error).__name__}: {error}")
                failure.__cause__ = error
            self.end(generation, FailedEvent(generation.request_id, failure))

    def _take(self, generation: Generation, is_next: bool) -> None:
        """Take a waiting generation; is_next: see `Scheduler.remove`. The caller has the lock."""
        self._scheduler.remove(generation, is_next)
        self._running[generation.request_id] = generation
        if generation.deadline is not None:
            self._deadlines.add((generation.deadline,), generation)
        self.num_rows += generation.num_rows

    def _abort(self, generation: Generation) -> None:
        if self._leave is not None:
            self._leave(generation)
        self.end(generation, AbortedEvent(generation.request_id))


def _first_expired(deadlines: RemovableHeap, now: float) -> Generation | None:
    first = deadlines.first
    has_expired = first is not None and first.deadline is not None and first.deadline <= now
    return first if has_expired else None

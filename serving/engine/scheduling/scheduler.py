"""The scheduler of one bundle: a single waiting queue for all of its engines.

Requests with the lowest `priority` are first; among equals, jobs take turns (`fair_queue.py`). The
first request is never overtaken, even if it waits for more rows than the next one needs. Waiting
does not raise a priority: while urgent requests fill every slot, the others wait.

The waiting time is bounded: a request whose estimated waiting time is too long is refused at once.

The engines run on their own threads. A waiting request belongs to the scheduler, a request that an
engine has taken belongs to that engine until it ends. All methods are thread-safe.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from serving.bundle.manifest import Manifest
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation, encode_span
from serving.engine.scheduling.fair_queue import Deadlines, JobQueues, JobSize, Throughput
from serving.engine.scheduling.validation import EncodingRequestValidator, RequestValidator
from serving.errors import DeviceError, EngineError, Overloaded, RequestError
from serving.requests.request import Event, FinishedEvent, GenerationRequest

_SMALL_PART = 8  # jobs of up to 1 / 8 of the slots are small
# Source tokens of a large job in one encoder run: 200 take as long per token as 1,000 (40 us), and
# delay other requests only a fifth as long.
_ENCODE_TOKENS_OF_LARGE_JOBS = 128


class Scheduler:
    """The waiting queue of one bundle: accepted generations that no engine has taken yet."""

    def __init__(
        self,
        manifest: Manifest,
        config: EngineConfig,
        slots: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """slots: number of rows of each engine."""
        self.config, self.slots = config, slots
        rules = EncodingRequestValidator if manifest.task.only_encodes else RequestValidator
        self._rules = rules(manifest, slots, config.timeout_seconds, config.prefill_chunk)
        self._job_queues = JobQueues(max(1, slots // _SMALL_PART))
        self._throughput, self._clock = Throughput(), clock
        self._deadlines = Deadlines()
        self._waiting: dict[str, Generation] = {}
        self._open_ids: set[str] = set()
        self._num_waiting_rows = 0
        self.waiting_work = 0
        self._engine_queues: list[EngineQueue] = []
        self.lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._waiting)

    def queue_for_engine(self, job_size: JobSize = JobSize.COMMON) -> "EngineQueue":
        """Return the queue from which one more engine takes generations."""
        queue = EngineQueue(self, job_size)
        if job_size is JobSize.COMMON:
            self._engine_queues.append(queue)
        else:
            self._job_queues.has_engine_for_small_jobs = True
        return queue

    def accept(self, requests: Sequence[GenerationRequest], now: float) -> list[Generation]:
        """Validate requests and return their generations. Raises RequestError."""
        return [self._rules.accept(request, now) for request in requests]

    def add(self, generations: Sequence[Generation]) -> None:
        """Add generations to the waiting queue, all or none. Raises RequestError, and Overloaded
        unless they go on with a job that was accepted before.
        """
        if not generations:
            return
        with self.lock:
            self._check_ids(generations)
            work = sum(generation.work for generation in generations)
            num_new = len({generation.request.job for generation in generations})
            request = generations[0].request
            who = request.share, request.priority
            if request.job_accepted_at is None:
                self._check_room(work, who, len(generations), num_new)
            self._job_queues.add(generations)
            for generation in generations:
                self._open_ids.add(generation.request_id)
                self._waiting[generation.request_id] = generation
                self._deadlines.add(generation)
                self._num_waiting_rows += generation.request.num_rows
                self.waiting_work += generation.work

    def check_room(self, work: int, share: str, priority: int) -> None:
        """Raise Overloaded if a job with `work` tokens would be refused now."""
        with self.lock:
            self._check_room(work, (share, priority), 1, 1)

    @property
    def is_shared(self) -> bool:
        """Return whether there is a large job, which must leave processor time for small ones."""
        return self._job_queues.has_large

    def weight(self, job_size: JobSize) -> float:
        """Return the share of the engines' time for jobs of this size."""
        with self.lock:
            return self._job_queues.weight(job_size)

    def done(self, generation: Generation) -> None:
        """Count a finished generation, to measure the throughput."""
        with self.lock:
            self._throughput.done(generation.work, self._clock(), bool(self._waiting))

    def waiting(self, request_id: str) -> Generation | None:
        return self._waiting.get(request_id)

    def all_waiting(self) -> list[Generation]:
        return list(self._waiting.values())

    def has_for(self, queue: "EngineQueue") -> bool:
        with self.lock:
            return self._job_queues.first(queue.job_size) is not None

    def first_for(self, queue: "EngineQueue") -> Generation | None:
        """Return the next generation for an engine, or None if another engine has fewer rows.

        Rows are distributed evenly. Otherwise the first engine would take all generations, and the
        other engines would be idle.
        """
        with self.lock:
            first = self._job_queues.first(queue.job_size)
            if first is None or queue.job_size is JobSize.SMALL:
                return first
            num_rows = self._num_waiting_rows + sum(each.num_rows for each in self._engine_queues)
            return first if queue.num_rows * len(self._engine_queues) < num_rows else None

    def hand_over(self, generation: Generation, has_come_up: bool = False) -> bool:
        """Remove a generation from the waiting queue; return whether it was still waiting.

        has_come_up: whether it was the next one of its queue.
        """
        with self.lock:
            if self._waiting.pop(generation.request_id, None) is None:
                return False
            if has_come_up:
                self._job_queues.take(generation)
            else:
                self._job_queues.remove(generation)
            self._deadlines.remove(generation)
            self._num_waiting_rows -= generation.request.num_rows
            self.waiting_work -= generation.work
            return True

    def take_expired(self, now: float) -> list[Generation]:
        """Remove and return the waiting generations whose deadline has passed."""
        with self.lock:
            expired = self._deadlines.take_expired(now)
            return [generation for generation in expired if self.hand_over(generation)]

    def close(self, generation: Generation) -> None:
        """Remove a generation that has ended. Its request id may be used again."""
        with self.lock:
            self._open_ids.discard(generation.request_id)
            self._job_queues.end(generation)

    def _check_ids(self, generations: Sequence[Generation]) -> None:
        seen: set[str] = set()
        for request_id in (generation.request_id for generation in generations):
            if request_id in self._open_ids or request_id in seen:
                raise RequestError("request_id", request_id, "is in use")
            seen.add(request_id)

    def _check_room(
        self, work: int, who: tuple[str, int], num_sequences: int, num_jobs: int
    ) -> None:
        """Raise Overloaded if the request would wait too long. Requests do not wait if rows are
        free.

        who: the share and the priority.
        """
        num_free = sum(self.slots - queue.num_rows for queue in self._engine_queues)
        if len(self._waiting) + num_sequences <= num_free:
            return
        num_waiting, most = self._job_queues.num_jobs_waiting, self.config.max_waiting
        seconds = self._seconds_before(work, who)
        if most is not None and num_waiting + num_jobs > most + num_free:
            raise Overloaded(num_waiting, seconds or 1.0, is_for_all=True)
        if self._is_long(work, who):
            ordinary = self.waiting_work // max(1, len(self._waiting))
            raise Overloaded(num_waiting, seconds, self._is_long(min(work, ordinary), who))

    def _is_long(self, work: int, who: tuple[str, int]) -> bool:
        """Return whether the estimated waiting time exceeds `max_wait_seconds` plus the time for
        the work itself.
        """
        rate, most = self._throughput.work_per_second, self.config.max_wait_seconds
        if rate is None or most is None:
            return False
        return self._seconds_before(work, who) > most + work / rate

    def _seconds_before(self, work: int, who: tuple[str, int]) -> float:
        """Return the estimated waiting time in seconds; 0 while no throughput is known."""
        rate = self._throughput.work_per_second
        return self._job_queues.before(work, *who) / rate if rate else 0.0


class EngineQueue:
    """The queue of one engine: it takes generations from the scheduler and lists those it has
    taken.

    num_rows: rows that these generations use or may use.
    """

    def __init__(self, scheduler: Scheduler, job_size: JobSize) -> None:
        self._scheduler, self.job_size = scheduler, job_size
        self._taken: dict[str, Generation] = {}
        self._deadlines = Deadlines()
        self.num_rows = 0

    @property
    def num_waiting(self) -> int:
        """Return the number of generations that no engine has taken yet."""
        return len(self._scheduler)

    @property
    def has_work(self) -> bool:
        return bool(self._taken) or self._scheduler.has_for(self)

    @property
    def first(self) -> Generation | None:
        """Return the generation that this engine should take next, if any."""
        return self._scheduler.first_for(self)

    def take(self, generation: Generation) -> bool:
        """Take a generation; return False if another engine was faster."""
        with self._scheduler.lock:
            if not self._scheduler.hand_over(generation, has_come_up=True):
                return False
            self._hold(generation)
            return True

    def take_sources(self, num_free: int) -> list[Generation]:
        """Take the generations whose sources are encoded before the next step: as many as free rows
        and the token budget allow, at least one if a row is free.
        """
        taken: list[Generation] = []
        num_tokens, most = 0, self._scheduler.config.max_encode_tokens
        with self._scheduler.lock:
            if self._scheduler.is_shared:
                most = min(most, _ENCODE_TOKENS_OF_LARGE_JOBS)
            while (candidate := self.first) is not None:
                num_free -= candidate.request.num_rows
                num_tokens += encode_span(candidate)
                if num_free < 0 or (taken and num_tokens > most):
                    break
                self.take(candidate)
                taken.append(candidate)
        return taken

    def withdraw(self, request_id: str) -> Generation | None:
        """Return the generation of a request if it waits or this engine has taken it, else None.
        The engine must end it.
        """
        with self._scheduler.lock:
            waiting = self._scheduler.waiting(request_id)
            if waiting is not None:
                self._withdraw(waiting)
            return self._taken.get(request_id)

    def withdraw_all(self) -> list[Generation]:
        with self._scheduler.lock:
            for generation in self._scheduler.all_waiting():
                self._withdraw(generation)
            return list(self._taken.values())

    def withdraw_expired(self, now: float) -> list[Generation]:
        """Return generations whose deadline has passed, for this engine to end them."""
        with self._scheduler.lock:
            for generation in self._scheduler.take_expired(now):
                self._hold(generation)
            return self._deadlines.take_expired(now)

    def end(self, generation: Generation, is_done: bool) -> None:
        """Remove a generation that has ended. is_done: whether it finished normally."""
        with self._scheduler.lock:
            if is_done:
                self._scheduler.done(generation)
            del self._taken[generation.request_id]
            self._deadlines.remove(generation)
            self.num_rows -= generation.request.num_rows
            self._scheduler.close(generation)

    def _withdraw(self, generation: Generation) -> None:
        self._scheduler.hand_over(generation)
        self._hold(generation)

    def _hold(self, generation: Generation) -> None:
        self._taken[generation.request_id] = generation
        self._deadlines.add(generation)
        self.num_rows += generation.request.num_rows


logger = logging.getLogger(__name__)


class EventQueue:
    """The events of one engine that were not returned yet. It also ends generations.

    leave: removes a generation from the engine's rows or from its prefill.
    """

    def __init__(self, queue: EngineQueue, leave: Callable[[Generation], None]) -> None:
        self._queue, self._leave = queue, leave
        self._events: list[Event] = []

    def __bool__(self) -> bool:
        return bool(self._events)

    def take_all(self) -> list[Event]:
        """Return and remove all queued events."""
        events, self._events = self._events, []
        return events

    def add(self, events: Iterable[Event]) -> None:
        """Queue events that do not end a request."""
        self._events += events

    def end(self, generation: Generation, final_event: Event) -> None:
        """Queue the final event of a generation that has left the engine."""
        self._queue.end(generation, type(final_event) is FinishedEvent)
        self._events.append(final_event)

    def cancel(self, request_id: str) -> None:
        """Abort a request if it waits or belongs to this engine; ignore one that has ended."""
        generation = self._queue.withdraw(request_id)
        if generation is not None:
            self._abort(generation)

    def cancel_all(self) -> None:
        for generation in self._queue.withdraw_all():
            self._abort(generation)

    def expire(self, now: float) -> int:
        """End the generations whose deadline has passed; return their number."""
        expired = self._queue.withdraw_expired(now)
        for generation in expired:
            self._leave(generation)
            self.end(generation, generation.expired_event())
        return len(expired)

    def fail(self, generations: list[Generation], error: Exception) -> None:
        """End generations that have left the engine with an error. The engine goes on, unless its
        device has failed: then all later runs would fail too, and the error is raised.
        """
        if isinstance(error, DeviceError):
            raise error
        logger.error("%d requests failed", len(generations), exc_info=error)
        for generation in generations:
            self.end(generation, generation.failed_event(_failure(error)))

    def _abort(self, generation: Generation) -> None:
        self._leave(generation)
        self.end(generation, generation.aborted_event())


def _failure(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    failure = EngineError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure

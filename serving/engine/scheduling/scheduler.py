"""The scheduler of one bundle: a single waiting queue from which all of its engines take requests.

The lowest `priority` comes first; among equals, jobs take turns (`fair_queue.py`). Nobody overtakes
the first request, even if it waits for more rows than the next one needs. Waiting does not raise a
priority: while urgent requests fill every slot, the others wait.

The waiting time is bounded: a request whose estimated waiting time is too long is refused at once.

The engines run on threads of their own. What waits belongs to the scheduler; what an engine has
taken belongs to that engine until it ends. All methods are thread-safe.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from serving.bundle.manifest import Manifest
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.scheduling.fair_queue import Deadlines, Lane, Lanes
from serving.engine.scheduling.validation import EncodingRules, RequestRules
from serving.engine.scheduling.waiting_time import Throughput, encode_span
from serving.errors import DeviceError, EngineError, Overloaded, RequestError
from serving.request import Event, FinishedEvent, GenerationRequest

_SMALL_PART = 8  # jobs of up to this part of the slots are small
# Of a large job, sources are encoded so many tokens at a time: 200 take no longer for each token
# than 1,000 do (40 us), and hold others up for a fifth of the time.
_ENCODE_TOKENS_OF_LARGE_JOBS = 128


class Desk:
    """Holds accepted generations that no engine has taken yet, up to a bound."""

    def __init__(
        self,
        manifest: Manifest,
        config: EngineConfig,
        slots: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """slots: rows of each engine, as many as there is memory for."""
        self.config, self.slots = config, slots
        rules = EncodingRules if manifest.task.only_encodes else RequestRules
        self._rules = rules(manifest, slots, config.timeout_seconds, config.prefill_chunk)
        self._lanes = Lanes(max(1, slots // _SMALL_PART))
        self._throughput, self._clock = Throughput(), clock
        self._deadlines = Deadlines()
        self._waiting: dict[str, Generation] = {}
        self._open_ids: set[str] = set()
        self._num_waiting_rows = 0
        self.waiting_work = 0
        self._seats: list[Seat] = []
        self.lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._waiting)

    def seat(self, lane: Lane = Lane.COMMON) -> "Seat":
        """Return the seat of one more engine."""
        seat = Seat(self, lane)
        if lane is Lane.COMMON:
            self._seats.append(seat)
        else:
            self._lanes.has_small_lane = True
        return seat

    def accept(self, requests: Sequence[GenerationRequest], now: float) -> list[Generation]:
        """Make generations of requests that come now. Raises RequestError."""
        return [self._rules.accept(request, now) for request in requests]

    def add(self, generations: Sequence[Generation]) -> None:
        """Let generations wait, all or none. Raises RequestError or Overloaded."""
        if not generations:
            return
        with self.lock:
            self._check_ids(generations)
            work = sum(generation.work for generation in generations)
            num_new = len({generation.request.job for generation in generations})
            request = generations[0].request
            who = request.share, request.priority
            self._check_room(work, who, len(generations), num_new)
            self._lanes.add(generations)
            for generation in generations:
                self._open_ids.add(generation.request_id)
                self._waiting[generation.request_id] = generation
                self._deadlines.add(generation)
                self._num_waiting_rows += generation.request.num_rows
                self.waiting_work += generation.work

    def check_room(self, work: int, share: str, priority: int) -> None:
        """Raise Overloaded if a job of so much work would be refused now."""
        with self.lock:
            self._check_room(work, (share, priority), 1, 1)

    @property
    def is_shared(self) -> bool:
        """Tell whether a large job is here, which is to leave room for small ones."""
        return self._lanes.has_large

    def weight(self, lane: Lane) -> float:
        """Return the part of the engines' time that is a lane's."""
        with self.lock:
            return self._lanes.weight(lane)

    def done(self, generation: Generation) -> None:
        """Count what has been done, for the rate at which it is."""
        with self.lock:
            self._throughput.done(generation.work, self._clock(), bool(self._waiting))

    def waiting(self, request_id: str) -> Generation | None:
        return self._waiting.get(request_id)

    def all_waiting(self) -> list[Generation]:
        return list(self._waiting.values())

    def has_for(self, seat: "Seat") -> bool:
        with self.lock:
            return self._lanes.first(seat.lane) is not None

    def first_for(self, seat: "Seat") -> Generation | None:
        """Return who comes next, unless another engine has less to do.

        Rows are shared evenly: else the first engine to look would take them all, and the others
        stand idle beside it.
        """
        with self.lock:
            first = self._lanes.first(seat.lane)
            if first is None or seat.lane is Lane.SMALL:
                return first
            num_rows = self._num_waiting_rows + sum(each.num_rows for each in self._seats)
            return first if seat.num_rows * len(self._seats) < num_rows else None

    def hand_over(self, generation: Generation, has_come_up: bool = False) -> bool:
        """Let a generation go; return whether it was still here.

        has_come_up: it was its turn.
        """
        with self.lock:
            if self._waiting.pop(generation.request_id, None) is None:
                return False
            if has_come_up:
                self._lanes.take(generation)
            else:
                self._lanes.remove(generation)
            self._deadlines.remove(generation)
            self._num_waiting_rows -= generation.request.num_rows
            self.waiting_work -= generation.work
            return True

    def take_expired(self, now: float) -> list[Generation]:
        """Let those go whose time is up."""
        with self.lock:
            expired = self._deadlines.take_expired(now)
            return [generation for generation in expired if self.hand_over(generation)]

    def close(self, generation: Generation) -> None:
        """Forget a generation that has ended: its name may be used again."""
        with self.lock:
            self._open_ids.discard(generation.request_id)
            self._lanes.end(generation)

    def _check_ids(self, generations: Sequence[Generation]) -> None:
        seen: set[str] = set()
        for request_id in (generation.request_id for generation in generations):
            if request_id in self._open_ids or request_id in seen:
                raise RequestError("request_id", request_id, "is in use")
            seen.add(request_id)

    def _check_room(
        self, work: int, who: tuple[str, int], num_sequences: int, num_jobs: int
    ) -> None:
        """Refuse what would wait for too long; what free rows can take does not wait.

        who: the share and the priority.
        """
        num_free = sum(self.slots - seat.num_rows for seat in self._seats)
        if len(self._waiting) + num_sequences <= num_free:
            return
        num_waiting, most = self._lanes.num_jobs_waiting, self.config.max_waiting
        seconds = self._seconds_before(work, who)
        if most is not None and num_waiting + num_jobs > most + num_free:
            raise Overloaded(num_waiting, seconds or 1.0, is_for_all=True)
        if self._is_long(work, who):
            ordinary = self.waiting_work // max(1, len(self._waiting))
            raise Overloaded(num_waiting, seconds, self._is_long(min(work, ordinary), who))

    def _is_long(self, work: int, who: tuple[str, int]) -> bool:
        """Tell whether others hold up so much work for longer than they may: for the longest wait
        that is allowed, and as long as it takes itself.
        """
        rate, most = self._throughput.work_per_second, self.config.max_wait_seconds
        if rate is None or most is None:
            return False
        return self._seconds_before(work, who) > most + work / rate

    def _seconds_before(self, work: int, who: tuple[str, int]) -> float:
        """Estimate how long others hold up so much work; 0 while there is no rate."""
        rate = self._throughput.work_per_second
        return self._lanes.before(work, *who) / rate if rate else 0.0


class Seat:
    """Is one engine's place at the desk: what it has taken and not ended.

    num_rows: what all of that has or may claim.
    """

    def __init__(self, desk: Desk, lane: Lane) -> None:
        self._desk, self.lane = desk, lane
        self._taken: dict[str, Generation] = {}
        self._deadlines = Deadlines()
        self.num_rows = 0

    @property
    def num_waiting(self) -> int:
        """Count what no engine has taken yet."""
        return len(self._desk)

    @property
    def has_work(self) -> bool:
        return bool(self._taken) or self._desk.has_for(self)

    @property
    def first(self) -> Generation | None:
        """Return whom this engine should take next, if anyone."""
        return self._desk.first_for(self)

    def take(self, generation: Generation) -> bool:
        """Take who came next; return whether no other engine was faster."""
        with self._desk.lock:
            if not self._desk.hand_over(generation, has_come_up=True):
                return False
            self._hold(generation)
            return True

    def take_sources(self, num_free: int) -> list[Generation]:
        """Take those whose sources are encoded before the next step: as many as free rows and the
        budget allow, and at least one while there are rows.
        """
        taken: list[Generation] = []
        num_tokens, most = 0, self._desk.config.max_encode_tokens
        with self._desk.lock:
            if self._desk.is_shared:
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
        """Return the generation of a request that waits, from now on this engine's to end, or that
        this engine has taken. None of one that has ended, or that another engine has.
        """
        with self._desk.lock:
            waiting = self._desk.waiting(request_id)
            if waiting is not None:
                self._withdraw(waiting)
            return self._taken.get(request_id)

    def withdraw_all(self) -> list[Generation]:
        with self._desk.lock:
            for generation in self._desk.all_waiting():
                self._withdraw(generation)
            return list(self._taken.values())

    def withdraw_expired(self, now: float) -> list[Generation]:
        """Return those whose time is up, here or in the queue, to be ended by this engine."""
        with self._desk.lock:
            for generation in self._desk.take_expired(now):
                self._hold(generation)
            return self._deadlines.take_expired(now)

    def end(self, generation: Generation, is_done: bool) -> None:
        """Let go of a generation that has ended. is_done: as it should."""
        with self._desk.lock:
            if is_done:
                self._desk.done(generation)
            del self._taken[generation.request_id]
            self._deadlines.remove(generation)
            self.num_rows -= generation.request.num_rows
            self._desk.close(generation)

    def _withdraw(self, generation: Generation) -> None:
        self._desk.hand_over(generation)
        self._hold(generation)

    def _hold(self, generation: Generation) -> None:
        self._taken[generation.request_id] = generation
        self._deadlines.add(generation)
        self.num_rows += generation.request.num_rows


logger = logging.getLogger(__name__)


class Finals:
    """Collects what happened at one engine until it is told.

    leave: takes a generation out of wherever the engine has it.
    """

    def __init__(self, seat: Seat, leave: Callable[[Generation], None]) -> None:
        self._seat, self._leave = seat, leave
        self._events: list[Event] = []

    def __bool__(self) -> bool:
        return bool(self._events)

    def tell(self) -> list[Event]:
        """Return what was not told yet."""
        events, self._events = self._events, []
        return events

    def add(self, events: Iterable[Event]) -> None:
        """Tell what is no end."""
        self._events += events

    def end(self, generation: Generation, final_event: Event) -> None:
        """End a generation that the engine has let go of."""
        self._seat.end(generation, type(final_event) is FinishedEvent)
        self._events.append(final_event)

    def cancel(self, request_id: str) -> None:
        """End a request now, if it waits or is this engine's; one that has ended already is left
        alone.
        """
        generation = self._seat.withdraw(request_id)
        if generation is not None:
            self._abort(generation)

    def cancel_all(self) -> None:
        for generation in self._seat.withdraw_all():
            self._abort(generation)

    def expire(self, now: float) -> int:
        """End those whose time is up, wherever they are; return how many there were."""
        expired = self._seat.withdraw_expired(now)
        for generation in expired:
            self._leave(generation)
            self.end(generation, generation.expired())
        return len(expired)

    def fail(self, generations: list[Generation], error: Exception) -> None:
        """End requests that the engine has let go of with an error; the engine lives on. It does
        not where its device has failed: then all later runs would too, and the error is raised.
        """
        if isinstance(error, DeviceError):
            raise error
        logger.error("%d requests failed", len(generations), exc_info=error)
        for generation in generations:
            self.end(generation, generation.failed(_failure(error)))

    def _abort(self, generation: Generation) -> None:
        self._leave(generation)
        self.end(generation, generation.aborted())


def _failure(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    failure = EngineError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure

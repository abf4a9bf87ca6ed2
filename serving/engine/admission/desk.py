"""Takes requests in for all engines of one bundle: one queue, and whoever has room takes the next.

The lowest `priority` comes first, and among equals who came first. Nobody overtakes the first one,
even if that one waits for more rows than the next would need; nor does waiting raise a priority:
while urgent requests fill every slot, the others wait.

Engines run side by side on threads of their own. What waits is the desk's; what an engine has taken
is that engine's alone, until it ends. All methods may be called from any thread.
"""

import threading
from collections.abc import Sequence

from serving.bundle.manifest import Manifest
from serving.engine.admission.queues import Deadlines, KeyedQueue
from serving.engine.admission.rules import RequestRules
from serving.engine.admission.spans import encode_span
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.errors import Overloaded, RequestError
from serving.request import GenerationRequest


class Desk:
    """Holds accepted generations that no engine has taken yet, up to a bound."""

    def __init__(self, manifest: Manifest, config: EngineConfig, slots: int) -> None:
        """slots: rows of each engine, as many as there is memory for."""
        self.config, self.slots = config, slots
        self._rules = RequestRules(manifest, slots)
        self._queue = KeyedQueue()
        self._deadlines = Deadlines()
        self._waiting: dict[str, Generation] = {}
        self._open_ids: set[str] = set()
        self._num_waiting_rows = 0
        self.num_waiting_tokens = 0
        self._seats: list[Seat] = []
        self.lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._waiting)

    def seat(self) -> "Seat":
        """Return the seat of one more engine."""
        seat = Seat(self)
        self._seats.append(seat)
        return seat

    def accept(self, requests: Sequence[GenerationRequest], now: float) -> list[Generation]:
        """Make generations of requests that come now. Raises RequestError."""
        return [self._rules.accept(request, now) for request in requests]

    def add(self, generations: Sequence[Generation]) -> None:
        """Let generations wait, all or none. Raises RequestError or Overloaded."""
        with self.lock:
            self._check_ids(generations)
            self._check_room(len(generations))
            for generation in generations:
                self._open_ids.add(generation.request_id)
                self._waiting[generation.request_id] = generation
                self._queue.add(generation.request.priority, generation)
                self._deadlines.add(generation)
                self._num_waiting_rows += generation.request.num_rows
                self.num_waiting_tokens += generation.num_given_tokens

    def waiting(self, request_id: str) -> Generation | None:
        return self._waiting.get(request_id)

    def all_waiting(self) -> list[Generation]:
        return list(self._waiting.values())

    def first_for(self, seat: "Seat") -> Generation | None:
        """Return who comes next, unless another engine has less to do.

        Rows are shared evenly: else the first engine to look would take them all, and the others
        stand idle beside it.
        """
        with self.lock:
            num_rows = self._num_waiting_rows + sum(each.num_rows for each in self._seats)
            return self._queue.first() if seat.num_rows * len(self._seats) < num_rows else None

    def hand_over(self, generation: Generation) -> bool:
        """Let a generation go; return whether it was still here."""
        with self.lock:
            if not self._queue.remove(generation):
                return False
            self._deadlines.remove(generation)
            del self._waiting[generation.request_id]
            self._num_waiting_rows -= generation.request.num_rows
            self.num_waiting_tokens -= generation.num_given_tokens
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

    def _check_ids(self, generations: Sequence[Generation]) -> None:
        seen: set[str] = set()
        for request_id in (generation.request_id for generation in generations):
            if request_id in self._open_ids or request_id in seen:
                raise RequestError("request_id", request_id, "is in use")
            seen.add(request_id)

    def _check_room(self, num_new: int) -> None:
        """Requests that free rows can take do not count as waiting."""
        limit = self.config.max_waiting
        num_free = sum(self.slots - seat.num_rows for seat in self._seats)
        if limit is not None and len(self._waiting) + num_new > limit + num_free:
            raise Overloaded(len(self._waiting))


class Seat:
    """Is one engine's place at the desk: what it has taken and not ended.

    num_rows: what all of that has or may claim.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._taken: dict[str, Generation] = {}
        self._deadlines = Deadlines()
        self.num_rows = 0

    @property
    def num_waiting(self) -> int:
        """Count what no engine has taken yet."""
        return len(self._desk)

    @property
    def has_work(self) -> bool:
        return bool(self._taken or self._desk)

    @property
    def first(self) -> Generation | None:
        """Return whom this engine should take next, if anyone."""
        return self._desk.first_for(self)

    def take(self, generation: Generation) -> bool:
        """Take a generation; return whether no other engine was faster."""
        with self._desk.lock:
            if not self._desk.hand_over(generation):
                return False
            self._hold(generation)
            return True

    def take_sources(self, num_free: int) -> list[Generation]:
        """Take those whose sources are encoded before the next step: as many as free rows and the
        budget allow, and at least one while there are rows.
        """
        taken: list[Generation] = []
        num_tokens = 0
        with self._desk.lock:
            while (candidate := self.first) is not None:
                num_free -= candidate.request.num_rows
                num_tokens += encode_span(candidate)
                if num_free < 0 or (taken and num_tokens > self._desk.config.max_encode_tokens):
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
                self.take(waiting)
            return self._taken.get(request_id)

    def withdraw_all(self) -> list[Generation]:
        with self._desk.lock:
            for generation in self._desk.all_waiting():
                self.take(generation)
            return list(self._taken.values())

    def withdraw_expired(self, now: float) -> list[Generation]:
        """Return those whose time is up, here or in the queue, to be ended by this engine."""
        with self._desk.lock:
            for generation in self._desk.take_expired(now):
                self._hold(generation)
            return self._deadlines.take_expired(now)

    def end(self, generation: Generation) -> None:
        """Let go of a generation that has ended."""
        with self._desk.lock:
            del self._taken[generation.request_id]
            self._deadlines.remove(generation)
            self.num_rows -= generation.request.num_rows
            self._desk.close(generation)

    def _hold(self, generation: Generation) -> None:
        self._taken[generation.request_id] = generation
        self._deadlines.add(generation)
        self.num_rows += generation.request.num_rows

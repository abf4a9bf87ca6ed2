"""Keeps generations in order of some key; any of them can be taken at any time."""

from heapq import heapify, heappop, heappush
from itertools import count

from serving.engine.generation import Generation

_SPARE_ENTRIES = 64
Key = tuple[float, ...]


class KeyedQueue:
    """Orders generations by key, the lowest first; equal keys in the order of arrival.

    Whoever leaves out of turn stays in the heap as a dead entry until it comes up, or until the
    dead outnumber the living.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int, Generation]] = []
        self._numbers = count()
        self._living: dict[Generation, tuple[Key, int]] = {}

    def __len__(self) -> int:
        return len(self._living)

    def add(self, key: Key, generation: Generation) -> None:
        number = next(self._numbers)
        self._living[generation] = key, number
        heappush(self._heap, (key, number, generation))

    def remove(self, generation: Generation) -> bool:
        """Remove a generation; return whether it was in the queue."""
        if self._living.pop(generation, None) is None:
            return False
        if len(self._heap) > 2 * len(self._living) + _SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._is_living(entry)]
            heapify(self._heap)
        return True

    def key_of(self, generation: Generation) -> Key:
        key, _ = self._living[generation]
        return key

    def first(self) -> Generation | None:
        while self._heap:
            if self._is_living(self._heap[0]):
                return self._heap[0][2]
            heappop(self._heap)
        return None

    def _is_living(self, entry: tuple[Key, int, Generation]) -> bool:
        key, number, generation = entry
        return self._living.get(generation) == (key, number)


class Deadlines:
    """Knows whose time is up. Costs nothing while nobody has a deadline."""

    def __init__(self) -> None:
        self._queue = KeyedQueue()

    def add(self, generation: Generation) -> None:
        if generation.deadline is not None:
            self._queue.add((generation.deadline,), generation)

    def remove(self, generation: Generation) -> None:
        self._queue.remove(generation)

    def take_expired(self, now: float) -> list[Generation]:
        expired: list[Generation] = []
        while (first := self._queue.first()) is not None:
            assert first.deadline is not None
            if first.deadline > now:
                break
            self._queue.remove(first)
            expired.append(first)
        return expired

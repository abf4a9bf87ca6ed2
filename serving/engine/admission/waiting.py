"""Decides who comes in next among those that wait, and how many sources one step takes.

The lowest `priority` comes first, and among equals who came first. Nobody overtakes the first one,
even if that one waits for more rows than the next would need; nor does waiting raise a priority:
while urgent requests fill every slot, the others wait.
"""

from collections.abc import Callable, Iterator
from itertools import groupby

from serving.engine.admission.queues import KeyedQueue
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.errors import Overloaded

ENCODE_STEP = 4
Fail = Callable[[list[Generation], Exception], None]  # told of those that cannot come in, and why


class Waiting:
    """Holds accepted generations without a slot, up to a bound."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._queue = KeyedQueue()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first(self) -> Generation | None:
        return self._queue.first()

    def add(self, generations: list[Generation], num_free: int) -> None:
        """Add all or none. Requests that free rows can take do not count as waiting."""
        limit = self._config.max_waiting
        if limit is not None and len(self._queue) + len(generations) > limit + num_free:
            raise Overloaded(len(self._queue))
        for generation in generations:
            self._queue.add(generation.request.priority, generation)

    def remove(self, generation: Generation) -> bool:
        """Remove a generation; return whether it was waiting."""
        return self._queue.remove(generation)

    def take_sources(self, num_free: int) -> list[Generation]:
        """Take those whose sources are encoded before the next step: as many as free rows and the
        budget allow, and at least one while there are rows.
        """
        taken: list[Generation] = []
        num_tokens = 0
        while (candidate := self._queue.first()) is not None:
            num_free -= candidate.request.num_rows
            num_tokens += encode_span(candidate)
            if num_free < 0 or (taken and num_tokens > self._config.max_encode_tokens):
                break
            self._queue.remove(candidate)
            taken.append(candidate)
        return taken


def encode_span(generation: Generation) -> int:
    """Return the padded length of a source: a matter of that alone, so the encoder's numbers are
    too. A multiple of 4, coarser as it grows, at most an eighth too long from 16 on.
    """
    length = generation.num_source_tokens
    step = max(ENCODE_STEP, 1 << max(length - 1, 0).bit_length() >> 4)
    return -(-length // step) * step


def encode_groups(generations: list[Generation]) -> Iterator[list[Generation]]:
    """Split into batches of one padded length each."""
    for _, group in groupby(sorted(generations, key=encode_span), key=encode_span):
        yield list(group)

"""Who comes in next: the waiting queue and the budgets of one step.

First come, first served: nobody is overtaken. A step admits as many as the free rows and the token
budgets allow, and at least one, so a new request waits for at most the step that is running while
there is room.
"""

from collections import deque
from collections.abc import Iterator
from itertools import groupby

from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.states import round_span
from serving.errors import Overloaded


class Scheduler:
    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._waiting: deque[Generation] = deque()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def add(self, generations: list[Generation], num_free: int) -> None:
        """All or none. Requests that free rows can take do not count as waiting."""
        if len(self._waiting) + len(generations) > self._config.max_waiting + num_free:
            raise Overloaded(len(self._waiting))
        self._waiting.extend(generations)

    def remove(self, generation: Generation) -> bool:
        """Whether it was waiting."""
        try:
            self._waiting.remove(generation)
        except ValueError:
            return False
        return True

    def admit(self, num_free: int) -> list[Generation]:
        """Take from the queue those that join the batch before the next step."""
        admitted: list[Generation] = []
        encode_tokens = prefill_tokens = 0
        while self._waiting:
            candidate = self._waiting[0]
            num_free -= candidate.request.num_rows
            if num_free < 0:
                break
            encode_tokens += encode_span(candidate)
            prefill_tokens += len(candidate.prompt_ids) - 1
            if admitted and (
                encode_tokens > self._config.max_encode_tokens
                or prefill_tokens > self._config.max_prefill_tokens
            ):
                break
            admitted.append(self._waiting.popleft())
        return admitted


def encode_span(generation: Generation) -> int:
    """Padded length of its source: a matter of that alone, so the encoder's numbers are too."""
    length = generation.num_source_tokens
    return round_span(length) if length else 0


def encode_groups(generations: list[Generation]) -> Iterator[list[Generation]]:
    """Split into batches of one padded length each."""
    for _, group in groupby(sorted(generations, key=encode_span), key=encode_span):
        yield list(group)

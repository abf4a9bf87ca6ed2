"""Ends what an engine has taken: every request with exactly one final event, which is told once."""

import logging
from collections.abc import Callable, Iterable

from serving.engine.admission.desk import Seat
from serving.engine.generation import Generation
from serving.errors import DeviceError, EngineError
from serving.request import Event, FinishedEvent

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

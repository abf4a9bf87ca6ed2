"""Declares what the pipelines need of an engine; `serving/engine/bridge.py` is one."""

from collections.abc import AsyncGenerator, Sequence
from typing import NoReturn, Protocol

from serving.errors import DeadlineExceeded, EngineError, EngineStopped, OutOfMemory
from serving.request import (
    AbortedEvent,
    Event,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
    Hypothesis,
    TokenEvent,
)


class EnginePort(Protocol):
    """Runs requests."""

    def check_room(self, work: int, share: str, priority: int) -> None:
        """Raise Overloaded if a job of about so much work, in tokens, would be refused
        now."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Yield the request's events as they come; closing the generator cancels the request."""

    def stream(self, requests: Sequence[GenerationRequest]) -> AsyncGenerator[list[Event], None]:
        """Yield the events of several requests as they come, those of one step together; either all
        are accepted or none. Closing the generator cancels them all.
        """

    async def run(self, requests: Sequence[GenerationRequest]) -> list[list[Event]]:
        """Return all events of all requests, once every one has ended.

        Either all are accepted or none. Cancelling cancels them all.
        """


def raise_failure(event: FailedEvent | AbortedEvent) -> NoReturn:
    """Raise what a request has failed with."""
    if isinstance(event, AbortedEvent):
        raise EngineStopped("the request was aborted: the engine is shutting down")
    if isinstance(event.error, EngineStopped | OutOfMemory | DeadlineExceeded):
        raise event.error
    raise EngineError(f"the engine failed: {event.error}") from event.error


def successful_end(events: Sequence[Event]) -> FinishedEvent:
    """Return the last event of a request that ended as it should; raise what it failed with."""
    end = events[-1]
    if not isinstance(end, FinishedEvent):
        assert not isinstance(end, TokenEvent), "a request's last event is final"
        raise_failure(end)
    return end


def ranked_hypotheses(events: Sequence[Event], num_forced: int) -> tuple[Hypothesis, ...]:
    """Return the hypotheses of a beam search, best first; without one, what was generated, whose
    score is the mean log-probability of the tokens after the first `num_forced`.
    """
    end = successful_end(events)
    if end.hypotheses:
        return end.hypotheses
    tokens = tuple(event for event in events if isinstance(event, TokenEvent))
    logprobs = [token.logprob for token in tokens[num_forced:]]
    if end.stop_logprob is not None:
        logprobs.append(end.stop_logprob)
    score = sum(logprobs) / max(len(logprobs), 1)
    return (Hypothesis(tokens, score, end.reason, end.stop_logprob),)
